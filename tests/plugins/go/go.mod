module plugins.example/fixture-go

go 1.24

require toolhold v0.0.0

replace toolhold => ../../../plugins/sdk-go
