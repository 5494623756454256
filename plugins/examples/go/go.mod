module plugins.example/word-count

go 1.24

require toolhold v0.0.0

replace toolhold => ../../sdk-go
