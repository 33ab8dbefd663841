// Package orders is where the code under test would be.
package orders
