package snowbank

import "testing"

// BenchmarkNext draws IDs from the buffer, with a daemon in this process. bench has those with a
// real daemon and a Redis.
func BenchmarkNext(b *testing.B) {
	daemon := startFake(b)
	client := newClient(b, Options{Endpoints: []string{daemon.address}})
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, err := client.Next(background); err != nil {
			b.Fatal(err)
		}
	}
}
