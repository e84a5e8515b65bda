package examples

import (
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"fairshare/policyfile"
)

// Requests at the same time are counted as if they came one after another: exactly as many
// as the policy allows pass.
func TestAtOnce(t *testing.T) {
	tests := []struct {
		example string
		request step
		want    int // that reach the site
	}{
		{"concurrent-rate-logging-only", step{target: "/big/{n}.iso", takes: time.Minute, times: 100}, 5},
		{"concurrent-rate-logging-only", step{target: "/robots.txt", takes: time.Minute, times: 100}, 100},
		{"page-and-site", step{target: "/item/{n}", times: 200}, 50},
		{"page-and-site", step{target: "/price", times: 200}, 2},
		{"quiet", step{target: "/list?page={n}", times: 100}, 3},
		{"own-hosts-exempt", step{target: "/item/{n}", times: 400}, 300},
	}
	for _, test := range tests {
		t.Run(test.example+test.request.target, func(t *testing.T) {
			file, err := policyfile.Load(filepath.Join(test.example, "policy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			file.Policy.DryRun = false
			synctest.Test(t, func(t *testing.T) {
				handler := newProcess(t, file, nil, time.Now(), nil).handler
				sent := test.request
				sent.method, sent.status, sent.client = "GET", 200, &client{addr: "203.0.113.7"}
				// Twice: the slots of the first round must be free in the second.
				for round := range 2 {
					requests := make([]*request, sent.times)
					for i := range requests {
						requests[i] = &request{step: &sent, n: i + 1, answer: httptest.NewRecorder()}
						go requests[i].send(handler)
					}
					synctest.Wait()
					reached := 0
					for _, q := range requests {
						if q.reached {
							reached++
						}
					}
					if reached != test.want {
						t.Errorf("round %d: %d of %d requests reached the site, want %d", round, reached, sent.times,
							test.want)
					}
					time.Sleep(15 * time.Minute) // a ban has ended by then, too
					synctest.Wait()
					for _, q := range requests {
						if (q.answer.Code == 200) != q.reached || !q.reached && q.answer.Code != 429 {
							t.Fatalf("round %d: answer %d, reached the site: %v", round, q.answer.Code, q.reached)
						}
					}
				}
			})
		})
	}
}
