package snowbank_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"

	snowbank "packages.example.org/snowbank/clients/go"
)

func Example() {
	client, err := snowbank.New(snowbank.Options{Endpoints: []string{"ids-1:7660", "ids-2:7660"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	id, err := client.Next(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
}

// Rows that belong together get their IDs in one round trip.
func ExampleClient_Batch_database() {
	insertLines := func(ctx context.Context, db *sql.DB, client *snowbank.Client, order int64, lines []string) error {
		ids, err := client.Batch(ctx, len(lines))
		if err != nil {
			return err
		}
		transaction, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer transaction.Rollback()
		for i, line := range lines {
			_, err := transaction.ExecContext(ctx, "INSERT INTO lines (id, order_id, text) VALUES ($1, $2, $3)", ids[i], order, line)
			if err != nil {
				return err
			}
		}
		return transaction.Commit()
	}
	_ = insertLines
}

// In JSON an ID is a string: JavaScript's numbers are exact only up to 2^53.
func ExampleClient_Next_json() {
	order := struct {
		ID int64 `json:"id,string"`
	}{ID: 2123687066859471775}
	text, _ := json.Marshal(order)
	fmt.Println(string(text))
	// Output: {"id":"2123687066859471775"}
}
