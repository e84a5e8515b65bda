package console

import (
	"time"

	"fairshare/internal/traffic"
)

// All times are of the system's clock, in UTC. A pointer to a time is nil if there is none: a ban without
// an end, a client that was never seen. Lists are never nil. Texts that clients have sent (paths, user
// agents, hosts) may have any bytes: escape them.

// Now is the present state of a server.
type Now struct {
	At       time.Time `json:"at"`
	Version  string    `json:"version"`
	Address  string    `json:"address"`  // where the server listens
	Upstream string    `json:"upstream"` // its URL
	Policy   string    `json:"policy"`   // the file
	Rules    int       `json:"rules"`
	Mode     string    `json:"mode"`   // enforcing or dry_run: every request passes
	Attack   string    `json:"attack"` // describes the attack mode; "": it is off
	Holder   string    `json:"holder"` // what holds most of a busy upstream: a client, network, fleet or owner; or ""

	Since  time.Time      `json:"since"` // when the counts began
	Totals traffic.Totals `json:"totals"`
	// Minute is what was counted in the last 60 whole seconds.
	Minute traffic.Totals `json:"last_minute"`

	Shared     bool    `json:"shared"`      // the upstream is shared: the next four fields are known
	Capacity   int     `json:"capacity"`    // requests at once
	InProgress int     `json:"in_progress"` // at the upstream
	Waiting    int     `json:"waiting"`
	Longest    float64 `json:"longest_wait_seconds"` // of the last one or two minutes

	Bans          int    `json:"bans"`           // that rules began, in force
	CounterMemory int64  `json:"counter_memory"` // bytes
	Counters      int64  `json:"counters"`       // in use, estimated
	CountersLost  uint64 `json:"counters_lost"`  // because the memory was full
	Registry      string `json:"registry"`       // ok, failing or none
}

// A Series is what was counted over time.
type Series struct {
	Step   int             `json:"step_seconds"` // 1 or 60
	Points []traffic.Point `json:"points"`       // in order; seconds or minutes without a server are missing
}

// A History is what one client, network, owner, fleet or bot did over time.
type History struct {
	By   string `json:"by"`           // one of HistoryDimensions
	Key  string `json:"key"`          // as commands spell it
	Step int    `json:"step_seconds"` // 60 or 3600
	// Source is "counts" if everything was counted since Since. With "journal" only the refusals are known that
	// are among the latest 2,000 of the server, and bytes and time are 0.
	Source string         `json:"source"`
	Since  *time.Time     `json:"since"`  // nil for the journal
	Points []HistoryPoint `json:"points"` // in order; steps without requests are missing
}

// A HistoryPoint is what was counted in a minute or hour. Sums are lower bounds, to the nearest 10 seconds.
type HistoryPoint struct {
	At time.Time `json:"at"` // when it began
	Sums
	More int64 `json:"more_requests"` // there may have been so many more
}

// A TopList has the keys of one dimension that surely have the greatest sums.
type TopList struct {
	By   string    `json:"by"`   // one of Dimensions
	Sort string    `json:"sort"` // one of Sorts
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	Total Sums `json:"total"` // of all keys, exact
	// Error bounds the sum that a key which is not listed may have.
	Error Sums     `json:"error"`
	Rows  []TopRow `json:"rows"`
}

// Sums are what the requests of a key add up to.
type Sums struct {
	Requests int64   `json:"requests"` // with those that were refused
	Refused  int64   `json:"refused"`  // or blocked
	DryRun   int64   `json:"dry_run"`  // passed, and would have been refused or blocked
	Bytes    int64   `json:"bytes"`    // of answers
	Seconds  float64 `json:"time_seconds"`
}

// A TopRow is one key with its sums. Each true sum is at least that of Sums and at most Error more.
type TopRow struct {
	Key   string  `json:"key"`   // as commands spell it; a user agent and a path are cut to 96 bytes
	Name  string  `json:"name"`  // of an owner; the state of a bot; otherwise ""
	Share float64 `json:"share"` // of all, by the measure of Sort, from 0 to 1
	Sums
	Error Sums `json:"error"`
}

// A Client is everything that is known about a client.
type Client struct {
	Client    string     `json:"client"`  // as commands spell it
	Through   string     `json:"through"` // the peer that named a provisional client; "" for others
	Known     bool       `json:"known"`   // there are records in the registry
	FirstSeen *time.Time `json:"first_seen"`
	LastSeen  *time.Time `json:"last_seen"`
	UserAgent string     `json:"user_agent"` // the latest
	Bot       string     `json:"bot"`
	BotState  string     `json:"bot_state"`
	ASN       uint32     `json:"asn"` // 0: nobody is known to own the addresses
	Owner     string     `json:"owner"`
	OwnerType string     `json:"owner_type"`
	Fleet     string     `json:"fleet"`
	Standing  bool       `json:"standing"` // known for a while, labeled or a verified bot

	Labels   []string  `json:"labels"`
	Note     string    `json:"note"`
	Decision *Decision `json:"decision"` // of an operator, in force: its own, or that of a wider prefix
	Bans     []Ban     `json:"bans"`     // of rules, in force or over: its own, around it and within it

	All     Sums      `json:"all"`    // since it is recorded
	Recent  []TopRow  `json:"recent"` // the last minute, 15 minutes and hour; Key is "1m", "15m", "1h"
	Limits  []Usage   `json:"limits"` // what is counted now
	Journal []Refusal `json:"journal"`
	Stories []Story   `json:"stories"` // refusals that are recorded, summed up for each rule, the latest first
}

// A Decision is an operator's decision about a client.
type Decision struct {
	Client string     `json:"client"` // that it is about
	Action string     `json:"action"` // allow, refuse (a ban with an end) or block
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until"`
	Reason string     `json:"reason"`
}

// A Usage is what a client has used of a limit now. Used and Allowed are in the unit of the resource:
// nanoseconds for cpu and time, bytes, else a number.
type Usage struct {
	Rule     string  `json:"rule"`
	By       string  `json:"by"` // the key, as the policy spells it
	Resource string  `json:"resource"`
	Used     int64   `json:"used"`
	Allowed  int64   `json:"allowed"`
	Window   float64 `json:"window_seconds"`
	Over     bool    `json:"over"`          // a request would be refused
	Wait     float64 `json:"wait_seconds"`  // until one would pass
	Reset    float64 `json:"reset_seconds"` // until nothing is counted, if no request comes
	DryRun   bool    `json:"dry_run"`
	Text     string  `json:"text"` // "17 of 30 requests in 1m"
}

// Rules are the rules of the policy, in order.
type Rules struct {
	File   string    `json:"file"`
	DryRun bool      `json:"dry_run"` // of the whole policy
	Since  time.Time `json:"since"`   // when the counts began
	Rules  []Rule    `json:"rules"`
	// Others are refusals that no rule of the policy made: a busy upstream, operators' bans, the attack
	// mode, and rules of earlier versions of the policy.
	Others   []Rule   `json:"others"`
	Warnings []string `json:"warnings"`
}

// A Rule is what one rule did.
type Rule struct {
	Name    string     `json:"name"`
	Text    string     `json:"text"` // what it does, in one sentence
	Action  string     `json:"action"`
	DryRun  bool       `json:"dry_run"` // this rule, or the whole policy
	Refused int64      `json:"refused"`
	Blocked int64      `json:"blocked"`
	WouldBe int64      `json:"would_refuse"` // in dry run
	Bans    int64      `json:"bans_begun"`
	Last    *time.Time `json:"last"`
	// Nearest is the client, among those with the most requests in the last minute, that has used most of
	// the limit; nil: none has used any, or the rule has no limit.
	Nearest *Nearest `json:"nearest"`
	// People are latest refusals of the rule whose clients look like browsers. In dry run these are
	// the people whom the rule would have refused by mistake.
	People []Refusal `json:"people"`
}

// A Nearest is how near a client is to a limit.
type Nearest struct {
	Client string `json:"client"`
	Usage
}

// A Bot is one bot and what it did in the last hour.
type Bot struct {
	Name       string   `json:"name"`
	State      string   `json:"state"`    // verified, claimed, pending or forged
	Operator   string   `json:"operator"` // "" if it is not known
	Categories []string `json:"categories"`
	Home       string   `json:"home"` // a page about it; may be ""
	Sums
	Error    Sums      `json:"error"`
	Decision *Decision `json:"decision"`
}

// Bots are the bots of the last hour.
type Bots struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Bots []Bot     `json:"bots"`
}

// Bans are the bans in force, and what operators allow.
type Bans struct {
	Bans      []Ban      `json:"bans"` // at most 1,000
	More      bool       `json:"more"` // there are more
	Decisions []Decision `json:"decisions"`
}

// A Ban is a ban that a rule began.
type Ban struct {
	Client  string    `json:"client"`
	Through string    `json:"through"`
	Rule    string    `json:"rule"`
	Began   time.Time `json:"began"`
	Until   time.Time `json:"until"`
	Number  int       `json:"number"` // how many bans in a row
	DryRun  bool      `json:"dry_run"`
	InForce bool      `json:"in_force"`
}

// A Journal has the latest refusals, the latest first.
type Journal struct {
	Refusals []Refusal `json:"refusals"`
	Stories  []Story   `json:"stories"` // of the registry, for a search by reference
}

// A Refusal is one request that was refused or blocked, or would have been.
type Refusal struct {
	N         int64     `json:"n"`  // refusals, one after the other, with the same path
	At        time.Time `json:"at"` // of the latest
	ID        string    `json:"id"` // the reference that the client was shown
	Client    string    `json:"client"`
	Through   string    `json:"through"`
	Address   string    `json:"address"`
	Rule      string    `json:"rule"`
	Action    string    `json:"action"` // refuse or block
	Ban       string    `json:"ban"`    // started, in_force or ""
	DryRun    bool      `json:"dry_run"`
	Room      bool      `json:"waiting_room"`
	Status    int       `json:"status"`
	Wait      float64   `json:"wait_seconds"`
	Counted   string    `json:"counted"` // "31 of 30 requests in 1m"; "" for a block and a ban in force
	Method    string    `json:"method"`
	Host      string    `json:"host"`
	Path      string    `json:"path"`
	UserAgent string    `json:"user_agent"`
	Bot       string    `json:"bot"`
	BotState  string    `json:"bot_state"`
	Fleet     string    `json:"fleet"`
	ASN       uint32    `json:"asn"`
	Owner     string    `json:"owner"`
	Browser   bool      `json:"browser"` // it has the user agent of a browser: it may be a person
}

// A Story sums up how one rule refused one client.
type Story struct {
	ID        string     `json:"id"`
	Client    string     `json:"client"`
	Rule      string     `json:"rule"`
	Action    string     `json:"action"`
	DryRun    bool       `json:"dry_run"`
	Status    int        `json:"status"`
	First     time.Time  `json:"first"`
	Last      time.Time  `json:"last"`
	Count     int64      `json:"count"`
	Until     *time.Time `json:"until"`
	Counted   string     `json:"counted"`
	Method    string     `json:"method"`
	Host      string     `json:"host"`
	Path      string     `json:"path"`
	UserAgent string     `json:"user_agent"`
}

// An Explanation is the walk of a request through the rules, with what is counted now.
type Explanation struct {
	Client   string    `json:"client"`
	Method   string    `json:"method"`
	Host     string    `json:"host"`
	Path     string    `json:"path"`
	Agent    string    `json:"user_agent"`
	Assumed  []string  `json:"assumed"` // what the request was given, because the question does not say it
	Decision *Decision `json:"decision"`
	Bans     []Ban     `json:"bans"` // in force
	Steps    []Step    `json:"steps"`
	Verdict  string    `json:"verdict"`
}

// A Step is one rule in an Explanation.
type Step struct {
	Rule    string   `json:"rule"`
	Reached bool     `json:"reached"` // false: a rule above ended the walk
	Holds   bool     `json:"holds"`
	Action  string   `json:"action"` // allow, block, or limit
	DryRun  bool     `json:"dry_run"`
	Reasons []string `json:"reasons"` // why it holds or not
	Limits  []Usage  `json:"limits"`
}

// A Result says what an action did.
type Result struct {
	Lines []string `json:"lines"`
}
