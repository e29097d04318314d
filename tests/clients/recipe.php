<?php
// Runs the recipe for PHP of docs/clients.md: recipe.php PAGE NAME PORT PORT. Prints each ID.
// The test kills or stops a daemon meanwhile.
[, $page, $name, $one, $other] = $argv;
eval(explode('```', explode("```php $name\n", file_get_contents($page))[1])[0]);
$ids = new Ids([['127.0.0.1', (int) $one], ['127.0.0.1', (int) $other]]);
for ($drawn = 0; $drawn < 6000; $drawn++) {
    echo $ids->next(), "\n";
    usleep(400);
}
