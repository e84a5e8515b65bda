package check

import (
	"context"
	"fmt"
	"io"
	"time"

	"fairshare"
	"fairshare/internal/prose"
	"fairshare/policyfile"
)

// Bounds of repeated requests.
const (
	MaxTimes  = 1_000_000
	maxPlayed = 366 * 24 * time.Hour // from the first request to the last
	maxSpans  = 20                   // that are written
)

// CheckTimes returns why requests cannot be repeated so often, or so far apart. The error names flags of fairshare
// check.
func CheckTimes(times int, every time.Duration) error {
	switch {
	case times < 1 || times > MaxTimes:
		return fmt.Errorf("--times: %d is not between 1 and %s", times, prose.Number(MaxTimes))
	case every > 0 && times < 2:
		return fmt.Errorf("--every needs --times: how many requests are played")
	case every > 0 && time.Duration(times-1) > maxPlayed/every:
		return fmt.Errorf("--times, --every: the last request would come more than 366 days after the first")
	}
	return nil
}

// A span is a row of requests with the same verdict.
type span struct {
	first, last int // 1 is the first request
	verdict     string
}

func (s *span) text(every time.Duration) string {
	at := func(n int) string { return policyfile.FormatDuration(time.Duration(n-1) * every) }
	request, after := "request "+prose.Number(s.first), ""
	if s.last > s.first {
		request = fmt.Sprintf("requests %s to %s", prose.Number(s.first), prose.Number(s.last))
	}
	if every > 0 && s.first > 1 {
		after = ", " + at(s.first) + " after the first"
	}
	return fmt.Sprintf("  %s%s: %s", request, after, s.verdict)
}

// repeat sends a request again, until there were o.Times, and writes where the verdict changes. first is the verdict
// of the first one, which guard has settled.
func repeat(ctx context.Context, w io.Writer, guard *fairshare.Guard, req *fairshare.Request, first *fairshare.Verdict,
	o WalkOptions) error {
	rhythm := "at the same moment"
	if o.Every > 0 {
		rhythm = "one every " + policyfile.FormatDuration(o.Every)
	}
	fmt.Fprintf(w, "%s requests, %s, each answered before the next:\n", prose.Number(o.Times), rhythm)
	current, written := span{1, 1, verdictText(first)}, 0
	for n := 2; n <= o.Times; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		next := *req
		next.Time = req.Time.Add(time.Duration(n-1) * o.Every)
		verdict, err := guard.Decide(ctx, &next)
		if err != nil {
			return err
		}
		if text := verdictText(&verdict); text == current.verdict {
			current.last = n
		} else {
			if written++; written > maxSpans {
				fmt.Fprintf(w, "  ... and more changes from request %s on\n", prose.Number(current.first))
				return nil
			}
			fmt.Fprintln(w, current.text(o.Every))
			current = span{n, n, text}
		}
		if err := guard.Settle(ctx, &verdict, fairshare.Outcome{Time: next.Time, Status: 200}); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, current.text(o.Every))
	return nil
}
