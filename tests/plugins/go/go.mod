module plugins.example/fixture-go

go 1.24

require berth v0.0.0

replace berth => ../../../plugins/sdk-go
