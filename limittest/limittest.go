package limittest

import (
	"testing"

	"fairshare"
)

// Run checks that the limiters which open returns keep what
// [fairshare.Limiter] promises, and what [fairshare.Peeker] and
// [fairshare.Preparer] do if they are one. In each nothing is spent yet, and it has room for a few hundred keys.
func Run(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter) {
	runTests(t, open, []conformanceTest{
		{"tables", runTables},
		{"paced", runPaced},
		{"all or none", runAllOrNone},
		{"dry group", runDryGroup},
		{"settled", runSettled},
		{"refunds", runRefunds},
		{"slots", runSlots},
		{"never", runNever},
		{"no drift", runNoDrift},
		{"settling is capped", runCap},
		{"corners", runCorners},
		{"older times", runOlder},
		{"a day ahead", runFarAhead},
		{"peek", runPeek},
		{"random", runRandom},
		{"at once", runAtOnce},
		{"expected", runExpected},
		{"five hundred", runFiveHundred},
		{"holds", runHolds},
		{"settled at once", runSettledAtOnce},
		{"held at once", runHeldAtOnce},
		{"overshoot", runOvershoot},
		{"prepared", runPrepared},
		{"prepared at once", runPreparedAtOnce},
	})
}

// A conformanceTest checks one promise.
type conformanceTest struct {
	name string
	run  func(*testing.T, func(testing.TB, []fairshare.Limit) fairshare.Limiter)
}

func runTests(t *testing.T, open func(testing.TB, []fairshare.Limit) fairshare.Limiter, tests []conformanceTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}
