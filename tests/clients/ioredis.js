// ioredis as an application uses it. Prints each ID with its source, as redis_py.py does.
const assert = require('node:assert');
const readline = require('node:readline');
const Redis = require(`${process.argv[3]}/ioredis`);

const client = new Redis({ port: Number(process.argv[2]), maxRetriesPerRequest: null, retryStrategy: () => 50 });
client.on('error', () => {});

const show = (source, ids) => ids.forEach((id) => {
    assert.strictEqual(typeof id, 'string');
    console.log('ID', source, id);
});

const results = (replies) => replies.map(([error, id]) => {
    assert.strictEqual(error, null);
    return id;
});

async function draw() {
    for (const source of ['fast', 'second']) {
        for (let i = 0; i < 20; i += 1) show(source, [await client.incr(source)]);
        let pipeline = client.pipeline();
        for (let i = 0; i < 100; i += 1) pipeline.incr(source);
        show(source, results(await pipeline.exec()));
        pipeline = client.multi();
        for (let i = 0; i < 100; i += 1) pipeline.incr(source);
        show(source, results(await pipeline.exec()));
        show(source, await client.call('SNOWBANK.NEXT', source, 1000));
        // A connection without the check that the server is ready.
        // IDs increase on each connection, not over both.
        const other = client.duplicate({ enableReadyCheck: false });
        other.on('error', () => {});
        show(`${source}-other`, await Promise.all([other.incr(source), other.incrby(source, 1)]));
        other.disconnect();
    }
}

async function meetRefusals() {
    for (const [code, ...asked] of [
        ['UNKNOWN_SOURCE', 'INCR', 'nothing'],
        ['BAD_COUNT', 'SNOWBANK.NEXT', 'fast', '0'],
        ['EXHAUSTED', 'SNOWBANK.NEXT', 'slow', '1000', 'WAIT', '1'],
    ]) await assert.rejects(() => client.call(...asked), (error) => error.message.startsWith(code));
}

async function main() {
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    await draw();
    await meetRefusals();
    console.log('PHASE');
    for (let phase = 0; phase < 2; phase += 1) {
        await lines.next();
        await client.ping();
        await draw();
        console.log('PHASE');
    }
    client.disconnect();
    process.exit(0);
}

main().catch((error) => { console.error(error); process.exit(1); });
