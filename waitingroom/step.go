package waitingroom

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
	"time"
)

// A Step is something that a visitor may do to count as known for longer. It is
// never an exemption.
type Step uint8

const (
	NoStep      Step = iota // the zero Step: visitors only wait
	Button                  // press a button
	ProofOfWork             // let the browser compute
)

// String returns the word of policy files.
func (s Step) String() string {
	switch s {
	case Button:
		return "button"
	case ProofOfWork:
		return "proof_of_work"
	}
	return "none"
}

// StepPath is the path to which the page sends a passed step. It never reaches a
// site behind a room with a step.
const StepPath = "/fairshare-step"

// What a passed step raises the standing of a visitor to.
const (
	buttonRaise = 10 * time.Second
	workRaise   = time.Minute
)

// Bounds of [Options.Difficulty], in bits.
const (
	MinDifficulty     = 8
	MaxDifficulty     = 20
	DefaultDifficulty = 18
)

// validity is how long a challenge may be answered.
const validity = 10 * time.Minute

// Raise returns for how long a visitor counts as known once it has passed the room's
// step; 0 if there is none.
func (r *Room) Raise() time.Duration {
	switch r.options.Step {
	case Button:
		return buttonRaise
	case ProofOfWork:
		return workRaise
	}
	return 0
}

// HasStep reports whether the room has a step.
func (r *Room) HasStep() bool { return r.options.Step != NoStep }

// A challenge is 64 hexadecimal digits. 8 bytes are the Unix seconds at which it
// expires, 24 are of an HMAC-SHA256 of these, the visitor and the step.
const (
	challengeMAC    = 24
	challengeLength = 2 * (8 + challengeMAC) // the size of a block of SHA-256
)

// appendChallenge appends a challenge for one visitor.
func (r *Room) appendChallenge(b []byte, visitor uint64, now time.Time) []byte {
	return r.appendSigned(b, visitor, now.Add(validity).Unix())
}

func (r *Room) appendSigned(b []byte, visitor uint64, expires int64) []byte {
	mac := hmac.New(sha256.New, r.key[:])
	var text [18]byte
	binary.BigEndian.PutUint64(text[:], uint64(expires))
	binary.BigEndian.PutUint64(text[8:], visitor)
	text[16], text[17] = byte(r.options.Step), byte(r.options.Difficulty)
	mac.Write(text[:])
	var sum [sha256.Size]byte
	mac.Sum(sum[:0])
	b = hex.AppendEncode(b, text[:8])
	return hex.AppendEncode(b, sum[:challengeMAC])
}

// maxAnswer is the most digits of the answer to a challenge.
const maxAnswer = 16

// Passed reports whether a visitor has passed the room's step. The challenge is its
// own and has not expired, and the answer to a proof of work is right. It takes at
// most some microseconds.
func (r *Room) Passed(visitor uint64, challenge, answer string, now time.Time) bool {
	if visitor == 0 || !r.HasStep() || len(challenge) != challengeLength {
		return false
	}
	var expires [8]byte
	if _, err := hex.Decode(expires[:], []byte(challenge[:16])); err != nil {
		return false
	}
	at := int64(binary.BigEndian.Uint64(expires[:]))
	if left := at - now.Unix(); left < 0 || left > int64(validity/time.Second) {
		return false
	}
	var space [challengeLength]byte
	if !hmac.Equal(r.appendSigned(space[:0], visitor, at), []byte(challenge)) {
		return false
	}
	if r.options.Step == ProofOfWork {
		return proves(challenge, answer, r.options.Difficulty)
	}
	return true
}

// proves reports whether the SHA-256 of the challenge and the answer begins with so
// many zero bits.
func proves(challenge, answer string, difficulty int) bool {
	if answer == "" || len(answer) > maxAnswer || strings.Trim(answer, "0123456789") != "" {
		return false
	}
	var space [challengeLength + maxAnswer]byte
	sum := sha256.Sum256(append(append(space[:0], challenge...), answer...))
	return bits.LeadingZeros32(binary.BigEndian.Uint32(sum[:])) >= difficulty
}

// maxReturn is the longest path to which a visitor returns after a step.
const maxReturn = 2048

// ReturnPath returns the path and query to which a visitor goes on after a step. It
// is "/" if the text could lead to another site.
func ReturnPath(to string) string {
	if to == "" || len(to) > maxReturn || to[0] != '/' || strings.HasPrefix(to, "//") {
		return "/"
	}
	for i := range len(to) {
		// Browsers remove tabs and line ends, and take a backslash for a slash.
		if c := to[i]; c <= ' ' || c >= 0x7F || c == '\\' {
			return "/"
		}
	}
	return to
}

// checkStep returns why the step of the options cannot be used.
func (o *Options) checkStep() error {
	switch {
	case o.Step > ProofOfWork:
		return fmt.Errorf("waiting room: %d is not a step", o.Step)
	case o.Difficulty != 0 && (o.Difficulty < MinDifficulty || o.Difficulty > MaxDifficulty):
		return fmt.Errorf("waiting room: a difficulty of %d is not between %d and %d bits", o.Difficulty,
			MinDifficulty, MaxDifficulty)
	}
	return nil
}
