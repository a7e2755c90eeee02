//go:build !linux

package main

import (
	"context"
	"errors"
	"time"
)

var errLinux = errors.New("the benchmark needs Linux, for its CPU clocks of processes and /proc")

func cpuTime(int) (time.Duration, error)      { return 0, errLinux }
func memory(int) (now, peak int, err error)   { return 0, 0, errLinux }
func resetPeak(int) error                     { return errLinux }
func processors() ([]int, error)              { return nil, errLinux }
func pinRole(context.Context, []string) error { return errLinux }
func machine() string                         { return "" }
func loadAverage() (string, error)            { return "", errLinux }
