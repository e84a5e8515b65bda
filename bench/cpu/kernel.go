//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// treeCPU returns the CPU seconds of a process and its children so far, as the kernel
// counts them.
func treeCPU(root int) float64 {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		rest := string(data[strings.LastIndexByte(string(data), ')')+1:])
		if fields := strings.Fields(rest); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	total := 0.0
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		queue = append(queue, children[queue[0]]...)
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", queue[0]))
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err != nil {
				continue
			}
			var ns float64
			fmt.Sscan(string(data), &ns)
			total += ns / 1e9
		}
	}
	return total
}
