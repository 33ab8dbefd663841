// Command orders takes orders: each one is a row in PostgreSQL and a record in a topic, or neither.
//
//	orders 127.0.0.1:9092 postgresql://localhost/shop tea milk
//
// Run it again after a crash.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := takeOrders(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

func takeOrders(ctx context.Context, servers, database string, names []string) error {
	db, err := sql.Open("pgx", database)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := CreateTable(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (name text PRIMARY KEY)"); err != nil {
		return err
	}
	session, err := Start(ctx, db, "order-service-1", kgo.SeedBrokers(strings.Split(servers, ",")...))
	if err != nil {
		return err
	}
	defer session.Close()
	for _, name := range names {
		err := session.Transaction(ctx, func(tx *sql.Tx, produce func(*kgo.Record)) error {
			added, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ($1) ON CONFLICT DO NOTHING", name)
			if err != nil {
				return err
			}
			if count, _ := added.RowsAffected(); count == 1 {
				produce(&kgo.Record{Topic: "orders", Value: []byte(name)})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
