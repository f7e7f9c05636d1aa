package proxy

import (
	"net"
	"sync"
)

// SpeakFirst returns conn with reads that block until something has been written to it
// or it has been closed. Otherwise net/http prints to standard error what a server
// sends without having been asked.
func SpeakFirst(conn net.Conn) net.Conn {
	return &speaker{Conn: conn, spoken: make(chan struct{})}
}

type speaker struct {
	net.Conn
	once   sync.Once
	spoken chan struct{}
}

func (s *speaker) speak() { s.once.Do(func() { close(s.spoken) }) }

func (s *speaker) Read(b []byte) (int, error) {
	<-s.spoken
	return s.Conn.Read(b)
}

func (s *speaker) Write(b []byte) (int, error) {
	s.speak()
	return s.Conn.Write(b)
}

func (s *speaker) Close() error {
	s.speak()
	return s.Conn.Close()
}
