package snowbank.client;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class IdSpaceTest {
    @ParameterizedTest
    @CsvSource(delimiter = '|', value = {
        "time:41,worker:10,sequence:12;tick=1ms;epoch=5 | time:41,worker:10,sequence:12;tick=1ms;epoch=5 | 33",
        "time:41,datacenter:5,worker:5,sequence:12;tick=1ms;epoch=5 | time:41,worker:10,sequence:12;tick=1ms;epoch=9 | 33",
        "time:41,worker:10,sequence:12;tick=1ms;epoch=5 | time:41,worker:10,sequence:12;tick=1s;epoch=5 |",
        "time:41,worker:10,sequence:12;tick=1ms;epoch=0 | time:41,worker:10,sequence:12;tick=1ms;epoch=1288834974657 |",
        "time:41,worker:10,sequence:12;tick=1ms;epoch=5 | time:41,sequence:12,worker:10;tick=1ms;epoch=5 |",
        "time:41,region:2:constant(1),worker:8,sequence:12;epoch=5 | time:41,region:2:constant(2),worker:8,sequence:12;epoch=5 |",
        "time:41,region:2:constant(1),worker:8,sequence:12;epoch=5 | time:41,zone:2:constant(1),worker:8,sequence:12;epoch=5 | 33",
        "time:16d,worker:=100,sequence:3d;epoch=2020-01-01 | time:16d,worker:2d,sequence:=1000;epoch=2020-01-01T00:00:00Z | 33",
        "a form of a later version | a form of a later version |",
    })
    void sharedWorkerIds(String one, String other, Long shared) {
        IdSpace space = IdSpace.of(new Info.Source(0, "default", one, List.of(33L, 34L)));
        IdSpace others = IdSpace.of(new Info.Source(0, "default", other, List.of(3L, 33L)));
        assertEquals(shared, space == null || others == null ? null : space.shared(others));
    }
}
