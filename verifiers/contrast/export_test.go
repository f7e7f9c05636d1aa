package contrast

// Program is program.
var Program = program
