package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// forgetPages has the system forget which pages of the program have been used, so that those that only the
// start needed do not count as memory of the process. A page is mapped again at its next use. Mappings are left
// out if the process may write to them, or if any page differs from the file, such as one with a breakpoint.
func forgetPages() {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	var from, to uintptr // of the mapping; 0 if it is left out
	for line := range strings.Lines(string(maps)) {
		switch fields := strings.Fields(line); {
		case len(fields) == 6 && strings.Contains(fields[0], "-"):
			// such as: 00400000-018bf000 r-xp 00000000 fe:00 10264760    /usr/bin/fairshare
			from = 0
			if fields[5] != program || !strings.HasPrefix(fields[1], "r-") {
				continue
			}
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
				from = 0
			}
		case len(fields) == 5 && strings.Contains(fields[0], "-"): // of no file
			from = 0
		case from != 0 && len(fields) == 3 && fields[0] == "Anonymous:" && fields[1] != "0":
			from = 0
		case from != 0 && len(fields) == 3 && fields[0] == "Swap:" && fields[1] == "0":
			syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		}
	}
}
