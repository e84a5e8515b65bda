package storebans

import (
	"net/netip"
	"testing"
	"time"

	"fairshare"
)

var noon = time.Unix(1_800_000_000, 0)

const noonMs = 1_800_000_000_000 // of the store

func flood() (entry, fairshare.BanRecord) {
	ban := fairshare.BanRecord{Client: fairshare.PrefixID(netip.MustParsePrefix("192.0.2.1/32")),
		Kind: fairshare.ByAddr, Rule: "flood", Number: 3, Began: noon.Add(-time.Minute),
		Until: noon.Add(time.Hour), Since: noon.Add(time.Hour)}
	e, _ := (&Bans{me: "me"}).banEntry(&ban, noon)
	return e, ban
}

func TestRecordsAreParsed(t *testing.T) {
	e, ban := flood()
	value := "ban 1799999940000 1800003600000 " + e.body
	r, err := parseRecord(e.id, value, noonMs, noon)
	if err != nil || r.by != "me" || r.ban == nil || *r.ban != ban {
		t.Fatalf("%+v, %v; want %+v", r.ban, err, ban)
	}
	later := noon.Add(time.Hour) // this machine's clock is an hour ahead
	if r, err = parseRecord(e.id, value, noonMs, later); err != nil || !r.ban.Began.Equal(ban.Began.Add(time.Hour)) ||
		!r.ban.Until.Equal(ban.Until.Add(time.Hour)) {
		t.Errorf("%+v, %v", r.ban, err)
	}
	ahead := "ban 1800000009000 1800003600000 " + e.body // written before the store's clock was set back
	if r, err = parseRecord(e.id, ahead, noonMs, noon); err != nil || !r.ban.Began.Equal(noon) {
		t.Errorf("%+v, %v", r.ban, err)
	}
	via := fairshare.ClientID{Prefix: netip.MustParsePrefix("192.0.2.1/32"), Via: netip.MustParseAddr("10.0.0.1")}
	l := Lift{Client: via, At: noon.Add(-time.Second), Forget: true, Stored: noon, id: "1"}
	e = (&Bans{}).liftEntry(&l)
	r, err = parseRecord(e.id, "lift 1799999999000 1900000000000 "+e.body, noonMs, noon)
	if err != nil || *r.lift != l {
		t.Errorf("%+v, %v; want %+v", r.lift, err, l)
	}
}

func TestRecordsThatMakeNoSense(t *testing.T) {
	e, _ := flood()
	for _, value := range []string{
		"", "ban", "ban 1 2", "ban 1 2 {}", "ban 1 2 []", "ban -1 1800003600000 " + e.body,
		"ban 1799999940000 1799999930000 " + e.body, // ends before it begins
		"ban 1799999940000 9223372036854775807 " + e.body,
		"ban 1799999940000 1800003600000 " + e.body[:len(e.body)-1],
		"bans 1799999940000 1800003600000 " + e.body,
		`ban 1799999940000 1800003600000 {"client":"192.0.2.1","rule":"flood","kind":9,"n":1}`,
		`ban 1799999940000 1800003600000 {"client":"192.0.2.1","rule":"flood","kind":1,"n":0}`,
		`ban 1799999940000 1800003600000 {"client":"a b","rule":"flood","kind":1,"n":1}`,
		`lift 1799999940000 1800003600000 {"client":""}`,
	} {
		if r, err := parseRecord(e.id, value, noonMs, noon); err == nil {
			t.Errorf("%q: %+v", value, r)
		}
	}
	if _, err := parseRecord("b another", "ban 1799999940000 1800003600000 "+e.body, noonMs, noon); err == nil {
		t.Error("a record under the id of another one is taken")
	}
}

func FuzzParseRecord(f *testing.F) {
	e, _ := flood()
	f.Add(e.id, "ban 1799999940000 1800003600000 "+e.body)
	f.Add("l192.0.2.1", `lift 1799999940000 1800003600000 {"client":"192.0.2.1","stored":5}`)
	f.Fuzz(func(t *testing.T, id, value string) {
		r, err := parseRecord(id, value, noonMs, noon)
		if err != nil {
			return
		}
		switch {
		case r.ban != nil && (r.ban.Began.After(noon) || r.ban.Until.Before(r.ban.Began) || r.ban.Number < 1):
			t.Errorf("%+v", r.ban)
		case r.lift != nil && r.lift.At.After(noon):
			t.Errorf("%+v", r.lift)
		case r.ban == nil && r.lift == nil:
			t.Error("neither a ban nor a lift")
		}
	})
}
