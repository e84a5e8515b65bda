package proxy

// IsRepeated reports whether a connection remembers its last request.
func IsRepeated(memory any) bool {
	m, _ := memory.(*repeat)
	return m.isKnown()
}

// RepeatedBytes returns how many bytes of texts a connection remembers.
func RepeatedBytes(memory any) int {
	m, ok := memory.(*repeat)
	if !ok {
		return 0
	}
	n := len(m.method) + len(m.host) + len(m.lines)
	for _, f := range m.fields[:cap(m.fields)] {
		n += len(f.Name) + len(f.Value)
	}
	return n
}
