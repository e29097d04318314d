package snowbank

import (
	"archive/zip"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	moduleVersion = "v0.1.0"
	sqliteDriver  = "github.com/mattn/go-sqlite3@v1.14.24"
	// buildTime limits each step of the build: SQLite is compiled from C.
	buildTime = 5 * time.Minute
)

// TestReadmeFromAPackedModule packs the module as it is published, or takes the one in the folder
// $SNOWBANK_DIST. It uses the module in an empty one, and runs the program of the README with two
// daemons, of which one is killed.
func TestReadmeFromAPackedModule(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles SQLite")
	}
	daemons := []*realDaemon{startDaemon(t, 1), startDaemon(t, 2)}
	program := readmeProgram(t)
	for i, address := range []string{"127.0.0.1:7660", "127.0.0.1:7661"} {
		program = strings.ReplaceAll(program, address, daemons[i].address)
	}
	directory := t.TempDir()
	modulePath, proxy := packModule(t)
	must(t, os.WriteFile(filepath.Join(directory, "main.go"), []byte(program), 0o600))
	usual, err := exec.Command("go", "env", "GOPROXY").Output()
	must(t, err)
	ctx, cancel := context.WithTimeout(background, buildTime)
	defer cancel()
	run := func(arguments ...string) *exec.Cmd {
		command := exec.CommandContext(ctx, "go", arguments...)
		command.Dir = directory
		command.Env = append(os.Environ(), "GOPROXY=file://"+proxy+","+strings.TrimSpace(string(usual)),
			"GONOSUMDB="+modulePath, "GOMODCACHE="+filepath.Join(directory, "cache"), "GOFLAGS=-modcacherw -mod=mod", "CGO_ENABLED=1")
		return command
	}
	for _, arguments := range [][]string{
		{"mod", "init", "orders"},
		{"get", sqliteDriver},
		{"get", modulePath + "@" + moduleVersion},
		{"vet", "."},
		{"build", "-o", "orders", "."},
	} {
		if output, err := run(arguments...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", arguments, err, output)
		}
	}
	orders := exec.Command(filepath.Join(directory, "orders"))
	orders.Dir = directory
	var output strings.Builder
	orders.Stdout, orders.Stderr = &output, &output
	must(t, orders.Start())
	ended := make(chan error, 1)
	go func() { ended <- orders.Wait() }()
	// The table is there before the first row.
	for {
		if file, err := os.Stat(filepath.Join(directory, "orders.db")); err == nil && file.Size() > 0 || len(ended) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	daemons[0].kill()
	if len(ended) > 0 {
		t.Error("the daemon was killed after the last row")
	}
	if err := <-ended; err != nil || output.String() != "rows: 500\n" {
		t.Errorf("%v\n%s", err, output.String())
	}
}

// readmeProgram returns the first program of README.md.
func readmeProgram(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	must(t, err)
	_, after, _ := strings.Cut(string(readme), "```go\n")
	program, _, isClosed := strings.Cut(after, "```")
	if !isClosed {
		t.Fatal("README.md has no program")
	}
	return program
}

// packModule makes a directory that the go command takes for a module proxy, with this module as a
// zip file.
func packModule(t *testing.T) (modulePath, directory string) {
	t.Helper()
	directory = t.TempDir()
	description, err := os.ReadFile("go.mod")
	must(t, err)
	firstLine, _, _ := strings.Cut(string(description), "\n")
	modulePath = strings.TrimPrefix(firstLine, "module ")
	versions := filepath.Join(directory, modulePath, "@v")
	must(t, os.MkdirAll(versions, 0o700))
	for name, text := range map[string]string{
		"list":                  moduleVersion + "\n",
		moduleVersion + ".info": `{"Version":"` + moduleVersion + `"}`,
		moduleVersion + ".mod":  string(description),
	} {
		must(t, os.WriteFile(filepath.Join(versions, name), []byte(text), 0o600))
	}
	packed := filepath.Join(versions, moduleVersion+".zip")
	if folder := os.Getenv("SNOWBANK_DIST"); folder != "" {
		content, err := os.ReadFile(filepath.Join(folder, "snowbank-client-go-"+moduleVersion[1:]+".zip"))
		must(t, err)
		must(t, os.WriteFile(packed, content, 0o600))
		return modulePath, directory
	}
	file, err := os.Create(packed)
	must(t, err)
	defer file.Close()
	archive := zip.NewWriter(file)
	must(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return skipNestedModule(path, err)
		}
		into, err := archive.Create(modulePath + "@" + moduleVersion + "/" + filepath.ToSlash(path))
		if err != nil {
			return err
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(into, from)
		return err
	}))
	must(t, archive.Close())
	return modulePath, directory
}

// skipNestedModule leaves out directories with a go.mod of their own, as the go command does.
func skipNestedModule(path string, err error) error {
	if err != nil || path == "." {
		return err
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}
