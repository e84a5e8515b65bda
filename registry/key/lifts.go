package key

// Lifts hold the clients whose bans were lifted or whose records were deleted, with
// the latest time of each. The zero Lifts are empty.
type Lifts struct {
	LastID int64 // of the last Add

	at     map[string]int64 // bans were lifted, or all was forgotten
	forgot map[string]int64 // all was forgotten
	bits   [256]bool        // lengths of the prefixes in at
}

// Add adds a change at a time in Unix ns.
func (l *Lifts) Add(id int64, k Key, at int64, forget bool) error {
	if l.at == nil {
		l.at, l.forgot = map[string]int64{}, map[string]int64{}
	}
	if _, err := Client(k); err != nil {
		return err
	}
	if !IsBot(k) {
		l.bits[k[bitsAt(k)]] = true
	}
	l.LastID = id
	l.at[string(k)] = max(at, l.at[string(k)])
	if forget {
		l.forgot[string(k)] = max(at, l.forgot[string(k)])
	}
	return nil
}

// Lifted reports whether the bans of a client that began at a time were lifted then or
// later. Lifts after latest do not count.
func (l *Lifts) Lifted(k Key, began, latest int64) bool {
	at, found := l.latest(l.at, k)
	return found && at >= began && at <= latest
}

// Remembered returns the start of a client's records: not before the client was last
// forgotten. forgotten reports that it was forgotten at last or after it. Times are in
// Unix ns; those after latest do not count.
func (l *Lifts) Remembered(k Key, first, last, latest int64) (from int64, forgotten bool) {
	if at, found := l.latest(l.forgot, k); found && at <= latest {
		return max(first, at+1), last <= at
	}
	return first, false
}

// latest returns the last change of k, or of a prefix that contains it.
func (l *Lifts) latest(done map[string]int64, k Key) (at int64, found bool) {
	if len(done) == 0 {
		return 0, false
	}
	at, found = done[string(k)]
	if IsBot(k) {
		return at, found
	}
	for bits := range nWider(k) {
		if l.bits[bits] {
			if of, known := done[string(prefixOf(k, bits))]; known && (!found || of > at) {
				at, found = of, true
			}
		}
	}
	return at, found
}
