package cgroup

import "time"

// Stats are the kernel's counters for a group. Counters that the kernel lacks are 0.
type Stats struct {
	CPU        time.Duration // user and system time of all processes
	PeakMemory int64         // bytes
	PeakPids   int64         // processes and threads
	OOMKills   int64         // processes killed because the group was out of memory
	PidsDenied int64         // forks refused because of the limit on processes
}

// Stats reads the counters. Call it before the group is removed.
func (g Group) Stats() Stats {
	v1 := g.h.Mode() != V2
	s := Stats{
		PeakPids:   number(readString(g.file("pids", "pids.peak"))),
		PidsDenied: keyed(readString(g.file("pids", "pids.events")), "max"),
	}
	if v1 {
		s.CPU = time.Duration(number(readString(g.file("cpuacct", "cpuacct.usage"))))
		s.PeakMemory = number(readString(g.file("memory", "memory.max_usage_in_bytes")))
		s.OOMKills = keyed(readString(g.file("memory", "memory.oom_control")), "oom_kill")
		return s
	}
	s.CPU = time.Duration(keyed(readString(g.file("cpu", "cpu.stat")), "usage_usec")) * time.Microsecond
	s.PeakMemory = number(readString(g.file("memory", "memory.peak")))
	s.OOMKills = keyed(readString(g.file("memory", "memory.events")), "oom_kill")
	return s
}
