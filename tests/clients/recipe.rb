# Runs the recipe for Ruby of docs/clients.md: recipe.rb PAGE NAME PORT PORT. Prints each ID. The
# test kills or stops a daemon meanwhile. At the end a child is forked while the buffer is full.
page, name, *ports = ARGV
eval(File.read(page, encoding: 'UTF-8').split("```ruby #{name}\n")[1].split('```')[0])
$stdout.sync = true
ids = Ids.new(ports.map { |port| ['127.0.0.1', port.to_i] })
draw = lambda do |count|
  count.times do
    puts ids.next
    sleep 0.0004
  end
end
draw.call(5_000)
child = fork { draw.call(500) }
draw.call(500)
Process.wait(child)
exit($?.exitstatus)
