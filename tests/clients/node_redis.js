// node-redis as an application uses it. Prints each ID with its source, as redis_py.py does.
const assert = require('node:assert');
const readline = require('node:readline');
const { createClient, createClientPool } = require(`${process.argv[3]}/redis`);

// A call may wait as long as a busy machine needs: the test asserts no duration,
// and node-redis gives up after 5 s.
const commandOptions = { timeout: 60_000 };
const client = createClient({
    name: 'orders',
    socket: { port: Number(process.argv[2]), reconnectStrategy: () => 50 },
    commandOptions,
});
client.on('error', () => {});

const show = (source, ids) => ids.forEach((id) => {
    assert.strictEqual(typeof id, 'string');
    console.log('ID', source, id);
});

async function draw() {
    for (const source of ['fast', 'second']) {
        for (let i = 0; i < 20; i += 1) show(source, [await client.incr(source)]);
        // Requests of one tick of the event loop are pipelined.
        show(source, await Promise.all(Array.from({ length: 100 }, () => client.incr(source))));
        let transaction = client.multi();
        for (let i = 0; i < 100; i += 1) transaction = transaction.incr(source);
        show(source, await transaction.exec());
        show(source, await client.sendCommand(['SNOWBANK.NEXT', source, '1000']));
        const pool = await createClientPool(
            { socket: { port: Number(process.argv[2]) }, commandOptions },
            { acquireTimeout: commandOptions.timeout },
        ).connect();
        // Each call has a connection of its own, and IDs increase on each.
        const ids = await Promise.all([pool.incr(source), pool.incrBy(source, 1)]);
        ids.forEach((id, connection) => show(`${source}-${connection}`, [id]));
        await pool.close();
    }
}

async function meetRefusals() {
    for (const [code, ...asked] of [
        ['UNKNOWN_SOURCE', 'INCR', 'nothing'],
        ['BAD_COUNT', 'SNOWBANK.NEXT', 'fast', '0'],
        ['EXHAUSTED', 'SNOWBANK.NEXT', 'slow', '1000', 'WAIT', '1'],
    ]) await assert.rejects(() => client.sendCommand(asked), (error) => error.message.startsWith(code));
}

async function untilItWorks() {
    const end = Date.now() + 40_000;
    for (;;) {
        try {
            return await client.ping();
        } catch (error) {
            assert.ok(Date.now() < end, error);
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
    }
}

async function main() {
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    await client.connect();
    await draw();
    await meetRefusals();
    console.log('PHASE');
    for (let phase = 0; phase < 2; phase += 1) {
        await lines.next();
        await untilItWorks();
        await draw();
        console.log('PHASE');
    }
    process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
