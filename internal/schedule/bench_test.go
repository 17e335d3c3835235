package schedule

import (
	"fmt"
	"testing"
)

// queue is n challenges in n/100 namespaces, of ten issuers, every second name twice.
func queue(n int) []Challenge {
	challenges := make([]Challenge, n)
	for i := range challenges {
		c := challenge(fmt.Sprintf("n%d", i%max(1, n/100)), fmt.Sprintf("c%d", i), fmt.Sprintf("d%d.example.com", i/2), i)
		c.Issuer = fmt.Sprintf("i%d", i%10)
		challenges[i] = c
	}
	return challenges
}

// BenchmarkEvent is one challenge that ends, and the pass that starts the next.
func BenchmarkEvent(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		for _, issuerCap := range []int{0, 10} {
			b.Run(fmt.Sprintf("queued=%d/issuerCap=%d", n, issuerCap), func(b *testing.B) {
				s := New(Options{Cap: DefaultCap, IssuerCap: issuerCap})
				challenges := map[Key]Challenge{}
				for _, c := range queue(n) {
					challenges[c.Key] = c
				}
				s.Load(queue(n))
				var running []Key
				for b.Loop() {
					for _, d := range s.Next(epoch).Decisions {
						s.Applied(d.Key, true)
						c := challenges[d.Key]
						c.Processing = true
						s.Set(c)
						running = append(running, d.Key)
					}
					c := challenges[running[0]]
					s.Remove(c.Key)
					s.Set(c) // a new one like it: the queue stays as long as it is
					running = running[1:]
				}
			})
		}
	}
}

// BenchmarkPass fills all slots while everything is queued. What it has started is queued
// again before the next one, which is not measured.
func BenchmarkPass(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("queued=%d", n), func(b *testing.B) {
			s, challenges := New(Options{Cap: DefaultCap}), map[Key]Challenge{}
			for _, c := range queue(n) {
				challenges[c.Key] = c
			}
			s.Load(queue(n))
			for b.Loop() {
				started := s.Next(epoch).Decisions
				b.StopTimer()
				if len(started) < DefaultCap*3/4 { // of a hundred, half have a name that is busy
					b.Fatalf("%d were started", len(started))
				}
				for _, d := range started {
					s.Applied(d.Key, true)
					c := challenges[d.Key]
					c.Processing = true
					s.Set(c)
					c.Processing = false
					s.Set(c)
				}
				b.StartTimer()
			}
		})
	}
}

// BenchmarkWaiting is one self check that fails again, and the pass after it, while nobody waits for a slot.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("inFlight=%d", n), func(b *testing.B) {
			s := New(Options{Cap: n})
			challenges := queue(n)
			for i := range challenges {
				c := &challenges[i]
				c.DNSName, c.Processing, c.Presented, c.Yields = c.Name+".example.com", true, true, true
				s.Set(*c)
			}
			i := 0
			for b.Loop() {
				c := &challenges[i%n]
				i++
				c.NotBefore = c.NotBefore.Add(1)
				s.Set(*c)
				if len(s.Next(epoch).Decisions) != 0 {
					b.Fatal("somebody is parked for nobody")
				}
			}
		})
	}
}
