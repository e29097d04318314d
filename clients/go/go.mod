module packages.example.org/snowbank/clients/go

go 1.19
