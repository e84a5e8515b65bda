package main

import (
	"testing"

	"fairshare/share"
)

func TestBusyLine(t *testing.T) {
	was := share.Stats{Standing: share.Tally{Turns: 100, Waited: 10, Refused: 5, Expired: 1, Left: 3}, Newcomers: share.Tally{Turns: 7}}
	for _, test := range []struct {
		now  share.Stats
		want string
	}{
		{was, ""}, // nobody had to wait since
		{share.Stats{Standing: share.Tally{Turns: 150, Waited: 10, Refused: 5, Expired: 1, Left: 3}, Newcomers: share.Tally{Turns: 9}}, ""},
		{share.Stats{Capacity: 8, Inside: 8, Waiting: 2, Standing: share.Tally{Turns: 150, Waited: 30, Refused: 5, Expired: 1}, Newcomers: share.Tally{Turns: 9, Waited: 1}},
			"busy: of 52 requests 21 waited; 8 of 8 slots in use, 2 wait"},
		{share.Stats{Capacity: 8, Standing: share.Tally{Turns: 150, Waited: 30, Refused: 6, Expired: 3}, Newcomers: share.Tally{Turns: 7, Refused: 20}},
			"busy: of 73 requests 20 waited, 23 were refused (3 of clients with standing, 20 of newcomers); 0 of 8 slots in use, 0 wait"},
	} {
		if got := busyLine(test.now, was, "waited", "were refused"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
