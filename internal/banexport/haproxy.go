package banexport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HAProxy keeps bans in a map file: each prefix with the end of its ban in Unix seconds, so
// that HAProxy can end bans by itself. With a socket, the map in the memory of HAProxy is
// changed too; otherwise HAProxy reads the file at its next start or reload.
type HAProxy struct {
	Path   string
	Socket string // of the runtime API, with level admin; "" means none
	last   []Ban  // in the memory of HAProxy
	known  bool   // last is known
}

var _ Sink = (*HAProxy)(nil)

const (
	forever     = 253402300799 // the year 9999
	payloadSize = 8 << 10      // bytes of one command; HAProxy's buffer has 16 KiB
	maxMapText  = 256 << 20    // bytes of a map in the answer of HAProxy
)

func (h *HAProxy) Name() string       { return "HAProxy (" + h.Path + ")" }
func (*HAProxy) Every() time.Duration { return 0 }

// Apply implements Sink.
func (h *HAProxy) Apply(ctx context.Context, bans []Ban, check bool) error {
	content := h.content(bans)
	if file := (bansFile{path: h.Path}); !file.holds(content) {
		if err := file.replace(content); err != nil {
			return err
		}
	}
	if h.Socket == "" {
		return nil
	}
	if check || !h.known {
		held, err := h.read(ctx)
		if err != nil {
			h.known = false
			return err
		}
		h.last, h.known = held, true
	}
	if err := h.change(ctx, bans); err != nil {
		h.known = false
		return err
	}
	h.last = bans
	return nil
}

// Clear implements Sink.
func (h *HAProxy) Clear(ctx context.Context) error { return h.Apply(ctx, nil, true) }

// end returns the value of a ban in the map.
func end(b *Ban) int64 {
	if b.Until.IsZero() {
		return forever
	}
	return b.Until.Unix()
}

func (h *HAProxy) content(bans []Ban) []byte {
	b := bytes.NewBufferString("# Written by fairshare; changes are lost. Prefix, end of the ban (Unix seconds).\n")
	for i := range bans {
		fmt.Fprintf(b, "# %s\n%s %d\n", untilText(&bans[i]), bans[i].Prefix, end(&bans[i]))
	}
	return b.Bytes()
}

// change makes the map in memory equal to bans.
func (h *HAProxy) change(ctx context.Context, bans []Ban) error {
	added, removed := difference(h.last, bans)
	before := map[netip.Prefix]bool{}
	for _, b := range h.last {
		before[b.Prefix] = true
	}
	var commands []string
	var payload strings.Builder
	flush := func() {
		if payload.Len() > 0 {
			commands = append(commands, fmt.Sprintf("add map %s <<\n%s\n", h.Path, payload.String()))
			payload.Reset()
		}
	}
	for i := range removed {
		commands = append(commands, fmt.Sprintf("del map %s %s\n", h.Path, removed[i].Prefix))
	}
	for i := range added {
		b := &added[i]
		if before[b.Prefix] {
			commands = append(commands, fmt.Sprintf("set map %s %s %d\n", h.Path, b.Prefix, end(b)))
			continue
		}
		fmt.Fprintf(&payload, "%s %d\n", b.Prefix, end(b))
		if payload.Len() >= payloadSize {
			flush()
		}
	}
	flush()
	for _, c := range commands {
		answer, err := h.request(ctx, c, 64<<10)
		if err != nil {
			return err
		}
		if said := strings.TrimSpace(answer); said != "" && !strings.Contains(strings.ToLower(said), "not found") {
			return fmt.Errorf("%s: %s", h.Socket, said)
		}
	}
	return nil
}

// read returns the bans in the map of HAProxy's memory.
func (h *HAProxy) read(ctx context.Context) ([]Ban, error) {
	answer, err := h.request(ctx, "show map "+h.Path+"\n", maxMapText)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(answer, "Unknown map") {
		return nil, fmt.Errorf("the configuration of HAProxy uses no map %s: http-request deny if "+
			"{ src,map_ip(%s) -m found }", h.Path, h.Path)
	}
	var held []Ban
	for line := range strings.Lines(answer) {
		fields := strings.Fields(line) // 0x55d0 192.0.2.1/32 1790000000
		if len(fields) != 3 {
			if len(fields) == 0 {
				continue
			}
			return nil, fmt.Errorf("%s: %s", h.Socket, strings.TrimSpace(line))
		}
		prefix, err := netip.ParsePrefix(fields[1])
		seconds, unread := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || unread != nil {
			return nil, fmt.Errorf("%s: the map has %s", h.Socket, strings.TrimSpace(line))
		}
		b := Ban{Prefix: prefix, Until: time.Unix(seconds, 0)}
		if seconds == forever {
			b.Until = time.Time{}
		}
		held = append(held, b)
	}
	slices.SortFunc(held, comparePrefixes)
	// After a reload in the middle of a change it has a prefix twice. One command removes or sets both.
	return slices.CompactFunc(held, func(a, b Ban) bool { return a.Prefix == b.Prefix }), nil
}

// request sends a command to the runtime API and returns the answer.
func (h *HAProxy) request(ctx context.Context, command string, most int64) (string, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", h.Socket)
	if err != nil {
		return "", fmt.Errorf("runtime API: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if _, err := io.WriteString(conn, command); err != nil {
		return "", fmt.Errorf("runtime API: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, most+1))
	if err != nil {
		return "", fmt.Errorf("runtime API: %w", err)
	}
	if int64(len(answer)) > most {
		return "", errors.New("runtime API: the answer is too long")
	}
	return string(answer), nil
}
