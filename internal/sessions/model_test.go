package sessions_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairshare"
	"fairshare/internal/sessions"
)

// A visitor of the model is a client that is always the same kind of bot or person.
type visitor struct {
	client, host string
	bot          fairshare.Bot
}

func (v visitor) key() string {
	switch {
	case v.bot.State == fairshare.NoBot || v.bot.UserTriggered && v.bot.State != fairshare.Forged:
		return ""
	case v.bot.State == fairshare.Verified:
		return v.host + " " + v.bot.Name
	}
	return v.host + " " + v.bot.Name + " " + v.client[:strings.LastIndexByte(v.client, '.')]
}

func visitors() (all []visitor) {
	for _, host := range []string{"a", "b"} {
		for _, client := range []string{"192.0.2.1", "192.0.2.2", "198.51.100.1"} {
			for _, bot := range bots {
				all = append(all, visitor{client, host, bot})
			}
			all = append(all, visitor{client: client, host: host})
		}
	}
	slices.SortFunc(all, func(a, b visitor) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	return all
}

// A move is one request of the model, with its beginning and its later answer.
type move struct {
	visitor
	own     bool   // a POST, a password, a cookie
	aside   bool   // a login by the address
	cookie  string // the session that it sends
	address string // the session in its address
	offered string // the session that was added to the request
	status  int
	set     string // the session that the answer sets
	logIn   bool   // it opens or uses its own session

	begun, answered int // when, in steps of the model; -1: not yet
	reply           chan<- *move
	done            chan []string // cookies that the client gets
}

// A model stores all moves, and computes each result from all of them.
type model struct {
	moves []*move
	steps int
}

// offers returns the session that a key now shares.
func (m *model) offers(key string) (value string) {
	epoch := -1
	for step := range m.steps {
		for _, q := range m.moves {
			if q.begun == step {
				ends := q.own && q.key() == key || value != "" &&
					(q.cookie == value || q.address == value && q.key() != key)
				if ends {
					value, epoch = "", step
				}
			}
			if q.answered == step && q.key() == key && !q.own && !q.aside && q.begun > epoch && q.set != "" &&
				q.set != value &&
				q.offered == value && (q.status < 400 || q.status == 404) && q.set != q.address &&
				!m.sent(q.set, step) {
				value = q.set
			}
		}
	}
	return value
}

// sent reports whether a client sent a session as its own before a step.
func (m *model) sent(value string, before int) bool {
	return slices.ContainsFunc(m.moves, func(q *move) bool { return q.cookie == value && q.begun < before })
}

// With random requests and answers in any order, the sessions of persons and of different bots
// never mix.
func TestSessionsMatchTheModel(t *testing.T) {
	runs, offered := 200, 0
	if testing.Short() {
		runs = 40
	}
	for seed := range runs {
		offered += runModel(t, uint64(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if offered < 10*runs {
		t.Errorf("only %d sessions were offered in %d runs: the test tests nothing", offered, runs)
	}
}

func runModel(t *testing.T, seed uint64) (offers int) {
	rnd := rand.New(rand.NewPCG(seed, 4))
	arrived := make(chan *move)
	h := sessions.New(sessions.Config{Cookies: []string{"SID"}, Identify: clientOf},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.Context().Value(moveKey{}).(*move)
			if c, err := r.Cookie("SID"); err == nil && c.Value != q.cookie {
				q.offered = c.Value
			}
			reply := make(chan *move)
			q.reply = reply
			arrived <- q
			<-reply
			if q.set != "" {
				w.Header().Add("Set-Cookie", "SID="+q.set+"; Path=/")
			}
			w.WriteHeader(q.status)
		}))
	everybody := visitors()
	rnd.Shuffle(len(everybody), func(i, j int) { everybody[i], everybody[j] = everybody[j], everybody[i] })
	everybody = everybody[:3+rnd.IntN(6)]

	m := &model{}
	var open []*move                   // not answered yet
	openers := make(map[string]string) // the opener of each session: a key, or the client of a person
	private := make(map[string]bool)   // sessions with a logged-in user
	var values []string                // all sessions
	got := make(map[string][]string)   // sessions that each client got
	for range 120 {
		if len(open) == 0 || len(open) < 6 && rnd.IntN(2) == 0 {
			q := &move{visitor: everybody[rnd.IntN(len(everybody))], begun: m.steps, answered: -1,
				done: make(chan []string, 1)}
			r := httptest.NewRequest("GET", "http://"+q.host+"/", nil)
			switch n := rnd.IntN(20); {
			case n == 0:
				r.Method, q.own, q.logIn = "POST", true, true
			case n == 1:
				r.Header.Set("Authorization", "Basic x")
				q.own, q.logIn = true, true
			case n == 2:
				r.RequestURI = "http://" + q.host + "/?token=x"
				q.aside, q.logIn = true, true
			case n < 6 && len(got[fmt.Sprint(q.visitor)]) > 0:
				q.cookie = got[fmt.Sprint(q.visitor)][rnd.IntN(len(got[fmt.Sprint(q.visitor)]))]
			case n == 6 && len(values) > 0:
				q.cookie = values[rnd.IntN(len(values))] // stolen, or brought from before
			case n == 7 && len(values) > 0:
				q.address = values[rnd.IntN(len(values))]
				r.RequestURI = "http://" + q.host + "/a;sid=" + q.address
			}
			if q.cookie != "" {
				q.own, q.logIn = true, rnd.IntN(2) == 0
				r.Header.Set("Cookie", "SID="+q.cookie)
			}
			want := m.offers(q.key())
			r = r.WithContext(withMove(r.Context(), q))
			w := httptest.NewRecorder()
			go func() {
				h.ServeHTTP(known{w, addr(q.client), q.bot}, r)
				q.done <- w.Header()["Set-Cookie"]
			}()
			<-arrived
			m.moves, m.steps = append(m.moves, q), m.steps+1
			open = append(open, q)

			if q.key() == "" || q.own || q.aside {
				want = ""
			}
			if q.offered != want {
				t.Errorf("step %d: %v is offered %q, want %q", q.begun, q.visitor, q.offered, want)
			}
			if q.offered != "" {
				offers++
				switch {
				case openers[q.offered] != q.key():
					t.Errorf("step %d: %v is offered %q of %q", q.begun, q.visitor, q.offered, openers[q.offered])
				case private[q.offered]:
					t.Errorf("step %d: %v is offered %q, in which a user is logged in", q.begun, q.visitor, q.offered)
				case m.sent(q.offered, q.begun):
					t.Errorf("step %d: %v is offered %q, which a client sent", q.begun, q.visitor, q.offered)
				}
			}
			continue
		}
		i := rnd.IntN(len(open))
		q := open[i]
		open = slices.Delete(open, i, i+1)
		q.status = []int{200, 200, 200, 200, 200, 304, 302, 404, 403, 500}[rnd.IntN(10)]
		used := q.cookie + q.offered
		switch n := rnd.IntN(10); {
		case q.address != "" && used == "" && n < 5:
			q.set = q.address // as ColdFusion does
		case used == "" && n < 9 || n == 0: // opened, or opened again after the upstream forgot it
			q.set = fmt.Sprintf("session-%d-%d", seed, 1_000_000+len(values))
			values = append(values, q.set)
			if openers[q.set] = q.key(); q.key() == "" {
				openers[q.set] = q.client
			}
			used = q.set
		case n == 1:
			q.set = used // set again
		// identified by something other than a cookie
		case n == 2 && len(values) > 0 && q.key() != "" && q.offered == "":
			for _, v := range values {
				if m.sent(v, m.steps) {
					q.set = v
				}
			}
		}
		if q.logIn && used != "" {
			private[used] = true
		}
		q.answered = m.steps
		m.steps++
		q.reply <- q
		for _, line := range <-q.done {
			value, _, _ := strings.Cut(strings.TrimPrefix(line, "SID="), ";")
			if value == q.offered {
				t.Errorf("step %d: %v gets %q, which others are offered", q.answered, q.visitor, value)
			}
			got[fmt.Sprint(q.visitor)] = append(got[fmt.Sprint(q.visitor)], value)
		}
	}
	for _, q := range open {
		q.status = 200
		q.reply <- q
		<-q.done
	}
	return offers
}

// With concurrent requests, a session that a client sent before a request began is not added to
// that request, and no key gets a session that another key opened.
func TestSessionsConcurrently(t *testing.T) {
	var mu sync.Mutex
	openers, sent := make(map[string]string), make(map[string]bool)
	n := 0
	h := sessions.New(sessions.Config{Cookies: []string{"SID"}, Identify: clientOf, Wait: time.Millisecond},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.Context().Value(moveKey{}).(*move)
			mu.Lock()
			defer mu.Unlock()
			if c, err := r.Cookie("SID"); err == nil {
				if q.cookie == "" {
					q.offered = c.Value
				}
				return
			}
			n++
			q.set = fmt.Sprintf("session-of-many-%d", 1_000_000+n)
			openers[q.set] = q.key()
			w.Header().Add("Set-Cookie", "SID="+q.set)
		}))
	everybody := visitors()
	var all sync.WaitGroup
	var offers, wrong int
	for worker := range 8 {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 1000 {
				v := everybody[rnd.IntN(len(everybody))]
				mine := ""
				for range 1 + rnd.IntN(3) {
					q := &move{visitor: v, cookie: mine}
					r := httptest.NewRequest("GET", "http://"+v.host+"/", nil)
					if mine != "" {
						r.Header.Set("Cookie", "SID="+mine)
					}
					mu.Lock()
					before := make(map[string]bool)
					if key := q.key(); key != "" {
						for value := range sent {
							before[value] = openers[value] == key
						}
					}
					mu.Unlock()
					w := httptest.NewRecorder()
					h.ServeHTTP(known{w, addr(v.client), v.bot}, r.WithContext(withMove(r.Context(), q)))
					mu.Lock()
					if q.offered != "" {
						offers++
						if _, ok := before[q.offered]; ok || openers[q.offered] != q.key() || q.key() == "" {
							wrong++
						}
					}
					if mine != "" {
						sent[mine] = true
						if len(sent) > 100 {
							clear(sent)
						}
					}
					mu.Unlock()
					mine = q.set
				}
			}
		})
	}
	all.Wait()
	if wrong > 0 || offers < 500 {
		t.Errorf("%d of %d offers are wrong", wrong, offers)
	}
}
