package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestParseShard reads values of --shard, with the variables of Slurm and Kubernetes.
func TestParseShard(t *testing.T) {
	array := map[string]string{"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_TASK_COUNT": "4"}
	part := map[string]string{"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_MAX": "4", "SLURM_ARRAY_TASK_COUNT": "2"}
	indexed := map[string]string{"JOB_COMPLETION_INDEX": "0"}
	for _, tt := range []struct {
		text, want string
		env        map[string]string
	}{
		{"1/4", "1/4", nil},
		{"4/4", "4/4", array},
		{"auto", "3/4", array},
		{"auto/8", "3/8", part},
		{"auto/8", "1/8", indexed},
		{"auto", "the number of parts is unknown", part},
		{"auto", "the number of parts is unknown", indexed},
		{"auto/2", "there is no part 3 of 2", array},
		{"auto/2", "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX", nil},
		{"0/4", "parts are counted from 1", nil},
		{"5/4", "there is no part 5 of 4", nil},
		{"4", "expected I/N", nil},
		{"a/b", "expected I/N", nil},
		{"1/4/2", "expected I/N", nil},
	} {
		index, count, err := parseShard(tt.text, func(name string) string { return tt.env[name] })
		got := fmt.Sprintf("%d/%d", index, count)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s with %v: %s, want %s", tt.text, tt.env, got, tt.want)
		}
	}
}
