package key

import "time"

// Bounds that all registries have.
const (
	OverridesStay = 7 * 24 * time.Hour // after their end
	StepRows      = 1000               // that one transaction of Lift or Forget removes: others wait for it

	UsualLimit = 50   // of clients and stories, if a query has none
	MostFound  = 100  // bans and stories of a Found
	MostInside = 1000 // clients that a Found counts

	mostSpent = 1 << 50
)

// Bounded returns a value of an update as it is stored: so small that no sum overflows.
func Bounded[N ~int64](n N) int64 { return min(max(int64(n), 0), mostSpent) }

// MostRows returns the number of rows that Write allows for a bound: a sixteenth more, while
// Prune cannot keep up.
func MostRows(bound int) int64 { return int64(bound) + int64(bound)/16 }

// Pages calls each for all rows that read returns, until it returns false. read appends the next
// rows to an empty page, at most n; fewer are the last ones.
func Pages[Row any](n int, read func(page []Row) ([]Row, error), each func(*Row) bool) error {
	page := make([]Row, 0, n)
	for {
		var err error
		if page, err = read(page[:0]); err != nil {
			return err
		}
		for i := range page {
			if !each(&page[i]) {
				return nil
			}
		}
		if len(page) < n {
			return nil
		}
	}
}
