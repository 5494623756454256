module plugins.example/word-count

go 1.24

require berth v0.0.0

replace berth => ../../sdk-go
