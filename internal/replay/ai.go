package replay

import (
	"cmp"
	"slices"
	"strings"
)

// Purposes of AI bots.
const (
	Training = "training" // collects pages for models
	Search   = "search"   // makes an index for answers
	ByUser   = "user"     // fetches a page because a person asks for it
)

// An AIOperator has the figures of one operator's AI bots of one purpose. Forged ones are not
// among them.
type AIOperator struct {
	Operator string   `json:"operator"`
	Purpose  string   `json:"purpose"` // training, search or user
	Bots     []string `json:"bots"`    // the most requests first, at most ten
	Usage
	Refused  int64 `json:"refused"`  // or blocked
	Verified int64 `json:"verified"` // requests whose claim is proved
}

// addAI adds the operators of AI bots, the largest share of the requests, bytes or time first.
func (rec *recorder) addAI(r *Report) {
	r.AI = []AIOperator{}
	if rec.opts.AI == nil {
		return
	}
	for i := range r.Bots { // the most requests first
		b := &r.Bots[i]
		if b.State == "forged" {
			continue
		}
		operator, purpose := rec.opts.AI(b.Name)
		if purpose == "" {
			continue
		}
		at := slices.IndexFunc(r.AI, func(o AIOperator) bool {
			return o.Operator == operator &&
				o.Purpose == purpose
		})
		if at < 0 {
			at = len(r.AI)
			r.AI = append(r.AI, AIOperator{Operator: operator, Purpose: purpose})
		}
		o := &r.AI[at]
		if len(o.Bots) < mostOfRow && !slices.Contains(o.Bots, b.Name) {
			o.Bots = append(o.Bots, b.Name)
		}
		o.Requests += b.Requests
		o.Bytes = addBytes(o.Bytes, b.Bytes)
		o.Seconds += b.Seconds
		o.Refused += b.Refused + b.Blocked
		if b.State == "verified" {
			o.Verified += b.Requests
		}
	}
	slices.SortStableFunc(r.AI, func(a, b AIOperator) int {
		return cmp.Or(a.Usage.compare(b.Usage, r.Total), strings.Compare(a.Operator, b.Operator),
			strings.Compare(a.Purpose, b.Purpose))
	})
}
