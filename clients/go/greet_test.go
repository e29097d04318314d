package snowbank

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// quickRounds are times with rounds that a test can wait for.
func quickRounds() *times {
	quick := longTimes()
	quick.firstRound, quick.roundEvery, quick.roundAgain = time.Millisecond, 20*time.Millisecond, 10*time.Millisecond
	return quick
}

func TestTwoDaemonsWithOneClaimStopEveryCall(t *testing.T) {
	events := make(chan Event, 1_000)
	client, daemons := twoDaemons(t, Options{times: quickRounds(), OnEvent: func(e Event) { events <- e }})
	daemons[0].set(func(d *fakeDaemon) { d.claims = []uint64{3, 7} })
	daemons[1].set(func(d *fakeDaemon) { d.claims = []uint64{7, 9} })
	draw(t, client)
	var collision *CollisionError
	// What INFO says comes into the error later.
	eventually(t, "a collision", func() bool {
		return errors.As(bothCalls(client)["Batch"](background), &collision) && collision.Infos[1] != ""
	})
	if collision.Claim != 7 || !strings.Contains(collision.Error(), daemons[0].address) ||
		!strings.Contains(collision.Error(), daemons[1].address) || collision.Infos[1] != `{"name": "fake"}` {
		t.Errorf("%v", collision)
	}
	if _, err := client.Next(background); !errors.As(err, &collision) {
		t.Errorf("IDs were left in the buffer: %v", err)
	}
	daemons[1].set(func(d *fakeDaemon) { d.claims = []uint64{8, 9} })
	eventually(t, "calls go on", func() bool { return bothCalls(client)["Next"](background) == nil })
	for _, kind := range []EventKind{Connected, Collision, CollisionOver} {
		if e := <-events; e.Kind != kind {
			t.Errorf("%s in place of %s", e.Kind, kind)
		}
	}
}

func TestClaimsThatAreNoCollision(t *testing.T) {
	for name, change := range map[string]func(one, other *fakeDaemon){
		"one daemon at two addresses": func(one, other *fakeDaemon) {
			other.instance, one.claims, other.claims = one.instance, []uint64{1}, []uint64{1}
		},
		"other claims": func(one, other *fakeDaemon) { one.claims, other.claims = []uint64{1}, []uint64{2} },
		"none":         func(one, other *fakeDaemon) {},
		"one round only": func(one, other *fakeDaemon) {
			one.claims = []uint64{1}
			other.helloReply = func(tag uint16) []byte {
				if other.hellos%2 == 0 {
					return appendWelcome(tag, 1_000, 1_000, other.instance, 1)
				}
				return appendWelcome(tag, 1_000, 1_000, other.instance, 2)
			}
		},
		"another instance each time": func(one, other *fakeDaemon) {
			one.claims = []uint64{1}
			other.helloReply = func(tag uint16) []byte {
				return appendWelcome(tag, 1_000, 1_000, 1_000_000+uint64(other.hellos), 1)
			}
		},
	} {
		client, daemons := twoDaemons(t, Options{times: quickRounds(), PreferFirst: true})
		change(daemons[0], daemons[1])
		must(t, client.Ping(background))
		eventually(t, "ten rounds", func() bool {
			daemons[1].mu.Lock()
			defer daemons[1].mu.Unlock()
			return daemons[1].hellos > 10
		})
		if err := client.Ping(background); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheCallersOrderLeadsBackToTheFirst(t *testing.T) {
	client, daemons := twoDaemons(t, Options{times: quickRounds(), PreferFirst: true})
	address := daemons[0].address
	daemons[0].stop()
	if id := one(t, client); !daemons[1].owns(id) {
		t.Fatal(id)
	}
	daemons[0].listen(t, address)
	eventually(t, "the first serves again", func() bool { return daemons[0].owns(one(t, client)) })
}

func TestTheCallersOrderLeadsBackAlsoWithoutAConnection(t *testing.T) {
	client, daemons := twoDaemons(t, Options{times: quickRounds(), PreferFirst: true})
	address := daemons[0].address
	daemons[0].stop()
	one(t, client)
	daemons[1].set(func(d *fakeDaemon) {
		for socket := range d.open {
			socket.Close()
		}
	})
	eventually(t, "the idle connection is closed", func() bool { return client.Stats().Endpoint == "" })
	daemons[0].listen(t, address)
	eventually(t, "rounds", func() bool {
		daemons[0].mu.Lock()
		defer daemons[0].mu.Unlock()
		return daemons[0].hellos > 2
	})
	if id := one(t, client); !daemons[0].owns(id) {
		t.Error("the second served")
	}
}
