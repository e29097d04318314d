module packages.example.org/snowbank/clients/go/bench

go 1.19

require (
	github.com/gomodule/redigo v1.8.3
	packages.example.org/snowbank/clients/go v0.1.0
)

replace packages.example.org/snowbank/clients/go => ../

// Debian's golang-github-gomodule-redigo-dev.
replace github.com/gomodule/redigo => /usr/share/gocode/src/github.com/gomodule/redigo
