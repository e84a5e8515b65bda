package main

import (
	"testing"
	"time"

	"fairshare"
	"fairshare/policyfile"
	"fairshare/share"
)

func TestBusyLine(t *testing.T) {
	was := share.Stats{Standing: share.Side{Turns: 100, Waited: 10, Refused: 5, Expired: 1, Left: 3}, Newcomers: share.Side{Turns: 7}}
	for _, test := range []struct {
		now  share.Stats
		dry  bool
		want string
	}{
		{was, false, ""}, // nobody had to wait since
		{share.Stats{Standing: share.Side{Turns: 150, Waited: 10, Refused: 5, Expired: 1, Left: 3}, Newcomers: share.Side{Turns: 9}}, true, ""},
		{share.Stats{Capacity: 8, Inside: 8, Waiting: 2, LongestWait: 2100 * time.Millisecond, Standing: share.Side{Turns: 150, Waited: 30, Refused: 5, Expired: 1}, Newcomers: share.Side{Turns: 9, Waited: 1}}, false,
			"busy: of 52 requests 21 waited (2.1s at most); 8 of 8 slots in use, 2 wait"},
		{share.Stats{Capacity: 8, Standing: share.Side{Turns: 150, Waited: 30, Refused: 6, Expired: 3}, Newcomers: share.Side{Turns: 7, Refused: 20}}, false,
			"busy: of 73 requests 20 waited (0s at most), 23 were refused (3 of clients with standing, 20 of newcomers); 0 of 8 slots in use, 0 wait"},
		// In dry run those that would have been refused had their turn.
		{share.Stats{Capacity: 8, Inside: 9, Standing: share.Side{Turns: 150, Waited: 30, Refused: 6, Expired: 1}, Newcomers: share.Side{Turns: 27, Refused: 20}}, true,
			"busy: of 70 requests 20 would have waited, 21 would have been refused (1 of clients with standing, 20 of newcomers); 9 of 8 slots in use, 0 wait"},
	} {
		if got := busyLine(test.now, was, test.dry); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestSharingIsSaid(t *testing.T) {
	by := []fairshare.KeyPart{{Kind: fairshare.ByNetwork}, {Kind: fairshare.ByAddr}}
	for _, c := range []struct {
		share policyfile.Share
		want  string
	}{
		{policyfile.Share{Capacity: 1, By: by[1:], Wait: time.Second, Queue: 4}, "the upstream works on 1 request at once; shared by addr while it is busy, up to 4 wait, 1s at most"},
		{policyfile.Share{Min: 2, Max: 64, By: by, Wait: 90 * time.Second, Queue: 9}, "the upstream works on as many requests at once as it answers well, 2 to 64; shared by network, then addr while it is busy, up to 9 wait, 1m30s at most"},
		{policyfile.Share{Capacity: 8, By: by, Queue: 9}, "the upstream works on 8 requests at once; shared by network, then addr while it is busy, nobody waits: without a turn it is 503"},
		{policyfile.Share{Capacity: 8, By: by, Wait: time.Second}, "the upstream works on 8 requests at once; shared by network, then addr while it is busy, nobody waits: without a turn it is 503"},
	} {
		st := &site{file: &policyfile.File{Share: &c.share}}
		if got := st.sharing(); got != c.want {
			t.Errorf("said %q, want %q", got, c.want)
		}
	}
}
