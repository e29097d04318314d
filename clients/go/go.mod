module packages.example.org/snowbank/clients/go

// The path is a placeholder. To publish, replace it in every file of this folder by the
// repository's:
//	grep -rl packages.example.org/snowbank . |
//	xargs sed -i s=packages.example.org/snowbank=HOST/OWNER/snowbank=g
// Then tag the commit clients/go/vVERSION.

go 1.19
