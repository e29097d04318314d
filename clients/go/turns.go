package snowbank

import "time"

// do asks until the call is answered, fails, or ends at its deadline. A client that takes turns has
// a lane for each endpoint: a call begins with the one whose turn it is, tries each once, and
// begins again when the first of them does not rest any more.
func (c *core) do(k *call) (*reply, error) {
	for {
		if err := c.ended(k); err != nil {
			return nil, err
		}
		turn := int(c.turn.Add(1) % uint64(len(c.lanes)))
		soonest := time.Hour
		for i := range c.lanes {
			got, wait, err := c.lanes[(turn+i)%len(c.lanes)].try(k)
			if got != nil || err != nil {
				return got, err
			}
			soonest = min(soonest, wait)
		}
		c.pause(k.ctx, soonest)
	}
}
