package run

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

// A Shard is one of Count parts of a run. The ids of the selected tasks, the number of their attempts, and
// Count alone decide which shard an attempt belongs to, so that all machines agree.
type Shard struct{ Index, Count int } // Index is from 1

// ParseShard parses I/N, such as 1/4. With auto/N, I comes from the variables of an array job of Slurm, whose indexes
// begin with 1, or of an Indexed Job of Kubernetes.
func ParseShard(text string, getenv func(string) string) (s Shard, err error) {
	first, last, _ := strings.Cut(text, "/")
	if s.Count, err = strconv.Atoi(last); err == nil {
		switch slurm, kubernetes := getenv("SLURM_ARRAY_TASK_ID"), getenv("JOB_COMPLETION_INDEX"); {
		case first != "auto":
			s.Index, err = strconv.Atoi(first)
		case slurm != "":
			s.Index, err = strconv.Atoi(slurm)
		case kubernetes != "":
			s.Index, err = strconv.Atoi(kubernetes)
			s.Index++
		default:
			return Shard{}, errors.New("neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set")
		}
	}
	if err != nil {
		return Shard{}, errors.New("expected I/N, such as 1/4, or auto/N")
	}
	return s, record.CheckShard(s.Index, s.Count)
}

// Dir returns the name of the shard's directory. Names sort as the shards do.
func (s Shard) Dir() string {
	return fmt.Sprintf("shard-%0*d-of-%d", len(strconv.Itoa(s.Count)), s.Index, s.Count)
}

// ownMemory is the memory, in bytes, that a shard needs besides the memory of its sandboxes.
const ownMemory = 1 << 30

// ShardNeeds returns the cores and the memory, in bytes, of a shard that makes so many attempts at a time.
func ShardNeeds(t *testerfile.File, jobs int) (cpus float64, memory int64) {
	l := t.Runtime.Limits
	each := runtime.Limits{Memory: l.Memory, CPUs: l.CPUs}.Over(runtime.DefaultLimits())
	return each.CPUs * float64(jobs), each.Memory*int64(jobs) + ownMemory
}

// JobName returns a name for the job of a cluster that makes the run: letters, digits and . _ -.
func JobName(t *testerfile.File) string {
	return "sbench-" + regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(t.Run.ID, "-")
}

// ShardDirs returns the directories of shards: each of dirs that is a run, and the shards in the other dirs. The error is
// record.ErrShards for a directory that has none.
func ShardDirs(dirs []string) ([]string, error) {
	var all []string
	for _, dir := range dirs {
		_, err := os.Stat(filepath.Join(dir, record.ManifestFile))
		if err == nil {
			all = append(all, dir)
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		found, err := fs.Glob(os.DirFS(dir), "shard-*-of-*/"+record.ManifestFile)
		if err != nil || len(found) == 0 {
			return nil, errors.Join(err, fmt.Errorf("%w: %s is neither a run nor a directory with shards of one", record.ErrShards, dir))
		}
		for _, name := range found {
			all = append(all, filepath.Join(dir, filepath.Dir(name)))
		}
	}
	return all, nil
}

// dealt is an attempt that goes to a shard.
type dealt struct {
	record.AttemptKey
	sum [sha256.Size]byte // of its name: an order that no author of tasks can choose
}

// deal removes the attempts of other shards from the plan, and tasks that then have none.
func (p *Plan) deal() {
	if p.Shard == nil || len(p.tasks) == 0 {
		return
	}
	var all []dealt
	for _, task := range p.tasks {
		for n := 1; n <= p.Attempts; n++ {
			all = append(all, dealt{record.AttemptKey{Task: task.id, Number: n}, sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", task.id, n))})
		}
	}
	slices.SortFunc(all, func(a, b dealt) int { return bytes.Compare(a.sum[:], b.sum[:]) })
	shard := &record.Shard{Index: p.Shard.Index, Count: p.Shard.Count, Whole: len(all), Attempts: map[string][]int{}}
	list := sha256.New()
	for i, a := range all {
		to := i%shard.Count + 1
		_, _ = fmt.Fprintf(list, "%d %x\n", to, a.sum) // a hash never returns an error
		if to == shard.Index {
			shard.Attempts[a.Task] = append(shard.Attempts[a.Task], a.Number)
		}
	}
	for _, numbers := range shard.Attempts {
		slices.Sort(numbers)
	}
	shard.Deal = workspace.DigestOf(list)
	p.Limit, p.Select, p.shard = nil, func(id string) bool { return shard.Attempts[id] != nil }, shard
	p.tasks = slices.DeleteFunc(p.tasks, func(t plannedTask) bool { return !p.Select(t.id) })
}

func (p Plan) attemptNumbers(task string) []int {
	if p.shard != nil {
		return p.shard.Attempts[task]
	}
	all := make([]int, p.Attempts)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

func (p Plan) attempts() int {
	if p.shard == nil {
		return len(p.tasks) * p.Attempts
	}
	return p.shard.Planned()
}

func shardName(s *record.Shard) string {
	if s == nil {
		return "a run that is not sharded"
	}
	return fmt.Sprintf("shard %d of %d, dealt as %s", s.Index, s.Count, s.Deal)
}
