package terminal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	logsMount = "/logs" // where checkers write
	// rewardDir and rewardElsewhere are directories in logsMount: where rewards are, and where the
	// canary of a script that leaves one sends it.
	rewardDir, rewardElsewhere = "verifier", "canary"
	maxReward                  = 64 << 10 // bytes of a reward's file
	noReward                   = "no_reward"
	noFile                     = "the checker left neither reward.json nor reward.txt"

	maxLogs, maxLogBytes = 50, 4 << 20 // of the files of a checker that are kept, in number and together
)

// makeLogs makes a new directory for a checker to see as logsMount; "" if it sees none.
func (c *checker) makeLogs(dir string) (string, error) {
	if c.eval.Checker.Path == "" && !c.eval.Checker.Reward {
		return "", nil
	}
	logs, err := os.MkdirTemp(dir, "logs-")
	if err == nil {
		err = os.Chmod(logs, 0o755)
	}
	if c.eval.Checker.Reward && err == nil {
		for _, name := range []string{rewardDir, rewardElsewhere, "agent", "artifacts"} {
			err = errors.Join(err, os.Mkdir(filepath.Join(logs, name), 0o755))
		}
	}
	return logs, err
}

// A reward is what a checker left, as Harbor reads it. In reward.json, an object of numbers, the number
// called reward decides, or else the mean of all. Without that file, reward.txt has the number.
type reward struct {
	value  float64
	all    map[string]float64
	absent string // why there is no reward; "" if there is one
}

// openRewards opens the directory of rewards. The checker can have put a link in its place.
func openRewards(logs string) (*os.Root, error) {
	root, err := os.OpenRoot(logs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return foreign.OpenDir(root, rewardDir)
}

// readReward reads the reward in the directory that the checker saw as logsMount. The directory may
// hold anything, and nothing changes it any more.
func readReward(logs string) reward {
	root, err := openRewards(logs)
	if err != nil {
		return reward{absent: "the checker left no directory " + path.Join(logsMount, rewardDir)}
	}
	defer func() { _ = root.Close() }()
	for _, name := range []string{"reward.json", "reward.txt"} {
		text, err := foreign.Read(root, name, maxReward)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return reward{absent: fmt.Sprintf("%s is no file of at most %d bytes", name, maxReward)}
		}
		return parseReward(name, strings.TrimSpace(string(text)))
	}
	return reward{absent: noFile}
}

// A number is one in reward.json as Harbor reads it: it may be in quotes, and true is 1.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case "true":
		*n = 1
		return nil
	case "false":
		*n = 0
		return nil
	}
	value, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if *n = number(value); err == nil && (math.IsNaN(value) || math.IsInf(value, 0)) {
		return strconv.ErrRange
	}
	return err
}

func parseReward(name, text string) (r reward) {
	numbers := map[string]number{}
	if name == "reward.txt" {
		value, err := strconv.ParseFloat(text, 64)
		numbers["reward"] = number(value)
		if err != nil {
			return reward{absent: "reward.txt holds no number"}
		}
	} else if json.Unmarshal([]byte(text), &numbers) != nil || len(numbers) == 0 {
		return reward{absent: "reward.json is no object of numbers"}
	}
	r.all = map[string]float64{}
	for name, n := range numbers {
		r.all[name] = float64(n)
	}
	value, ok := r.all["reward"]
	if !ok { // Harbor takes one number under any name, and shows the mean of several
		for _, n := range r.all {
			value += min(max(n, 0), 1) / float64(len(r.all))
		}
		if slices.Min(slices.Collect(maps.Values(r.all))) >= 1 {
			value = 1 // whatever the sum's last bit is
		}
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return reward{absent: "the reward is no finite number"}
	}
	r.value = value
	return r
}

// exit returns the end of the checker as the reward says it: success if it passes.
func (r reward) exit(exit runtime.Exit) runtime.Exit {
	if exit.Reason == runtime.WallTime {
		return exit
	}
	exit.Reason, exit.Code, exit.Signal = runtime.Exited, 1, 0
	if r.absent == "" && r.value >= 1 {
		exit.Code = 0
	}
	return exit
}

// changed returns what exit does, for a checker with blind or broken tests. A file that is no reward counts as a pass, since a
// process that writes a forged reward again and again may have been about to write it.
func (r reward) changed(exit runtime.Exit) runtime.Exit {
	if exit = r.exit(exit); r.absent != "" && r.absent != noFile && exit.Reason == runtime.Exited {
		exit.Code = 0
	}
	return exit
}

// verdict returns the verdict for a checker that ended with exit. Without a reward it is a fault of
// the task if the candidate is the reference.
func (r reward) verdict(exit runtime.Exit, reference bool) verifiers.Verdict {
	v := verifiers.OfExit(r.exit(exit))
	v.Metadata = exit.Metadata()
	switch {
	case exit.Reason == runtime.WallTime:
	case r.absent == "":
		v = v.With(verifiers.Reward, maps.Clone(r.all))
		v.Score = min(max(r.value, 0), 1)
		if v.Status == verifiers.Failed {
			v.Message = "the reward is " + strconv.FormatFloat(verifiers.Rounded(r.value), 'g', -1, 64)
		}
	case reference:
		v.Status, v.Reason, v.Message = verifiers.Faulty, noReward, r.absent
	case exit.Reason == runtime.Exited || exit.Reason == runtime.Signaled:
		v.Reason, v.Message = noReward, fmt.Sprintf("%s, and %s", r.absent, exit)
	default: // a limit says more
		v.Reason, v.Message = verifiers.OfExit(exit).Reason, verifiers.OfExit(exit).Message
	}
	return v
}

var logName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,100}$`)

// checkerLogs returns the files in the directory of rewards by name, but for too long ones and odd names.
func checkerLogs(logs string) []verifiers.Log {
	root, err := openRewards(logs)
	if err != nil {
		return nil // the checker made none
	}
	defer func() { _ = root.Close() }()
	entries, _ := fs.ReadDir(root.FS(), ".") // what can be read counts
	var all []verifiers.Log
	left := int64(maxLogBytes)
	for _, e := range entries {
		if len(all) == maxLogs || !logName.MatchString(e.Name()) {
			continue
		}
		if text, err := foreign.Read(root, e.Name(), left); err == nil {
			left -= int64(len(text))
			all = append(all, verifiers.Log{Name: e.Name(), Text: string(text)})
		}
	}
	return all
}

// redirectable returns the files that name the directory of rewards.
func redirectable(files []contrast.File) []contrast.File {
	return slices.DeleteFunc(files, func(f contrast.File) bool { return !strings.Contains(f.Text, path.Join(logsMount, rewardDir)) })
}

// redirected returns scripts that leave their reward elsewhere.
func redirected(files []contrast.File) []contrast.File {
	files = slices.Clone(files)
	for i := range files {
		files[i].Text = strings.ReplaceAll(files[i].Text, path.Join(logsMount, rewardDir), path.Join(logsMount, rewardElsewhere))
	}
	return files
}

func isRedirected(files []contrast.File) bool {
	return slices.ContainsFunc(files, func(f contrast.File) bool {
		return strings.Contains(f.Text, path.Join(logsMount, rewardElsewhere))
	})
}

// forged returns a success if anything is in the reward's place although the script left its reward elsewhere.
func (r reward) forged(exit runtime.Exit) runtime.Exit {
	exit.Reason, exit.Code, exit.Signal = runtime.Exited, 0, 0
	if r.absent == noFile {
		exit.Code = 1
	}
	return exit
}
