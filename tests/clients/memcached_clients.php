<?php
// php-memcached, in both protocols: it reads on in the right place after commands that the daemon
// refuses. Prints nothing; fails by its exit code. Argument: the port.
const SPLIT = 1 << 53;

function check(bool $holds, string $what): void
{
    if (!$holds) {
        fwrite(STDERR, "$what\n");
        exit(1);
    }
}

function is_of(string $source, mixed $number): void
{
    check(is_numeric($number) && ((int) $number >= SPLIT) === ($source === 'fast'), "$source: " . var_export($number, true));
}

foreach ([false, true] as $binary) {
    $client = new Memcached();
    $client->setOption(Memcached::OPT_BINARY_PROTOCOL, $binary);
    $client->addServer('127.0.0.1', (int) $argv[1]);
    foreach (['set', 'add', 'replace'] as $refused) {
        check(!$client->$refused('fast', 'get fast'), "$refused was not refused");
        is_of('slow', $client->get('slow'));
        is_of('fast', $client->get('fast'));
    }
    $found = $client->get('slow', null, Memcached::GET_EXTENDED);
    is_of('slow', $found['value']);
    check((string) $found['cas'] === (string) $found['value'], 'the cas number');
    check(!$client->cas($found['cas'], 'slow', 'get fast'), 'cas was not refused');
    is_of('slow', $client->increment('slow'));
    $found = $client->getMulti(['slow:1', 'fast:1']);
    is_of('slow', $found['slow:1']);
    is_of('fast', $found['fast:1']);
    check(in_array('1.6.0', $client->getVersion()), 'the version');
    $client->quit();
}
