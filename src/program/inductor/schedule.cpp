#include "program/inductor/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

namespace plimsoll::program::inductor {

namespace {

/// Adjacency of the nodes, and what each allocates.
struct Planner {
  const std::vector<ScheduledNode>& nodes;
  const std::vector<ScheduledBuffer>& buffers;
  std::vector<std::vector<int>> predecessors, successors;
  std::vector<std::int64_t> size;

  Planner(const std::vector<ScheduledNode>& all_nodes, const std::vector<ScheduledBuffer>& all_buffers)
      : nodes(all_nodes), buffers(all_buffers), predecessors(nodes.size()), successors(nodes.size()), size(nodes.size()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (const int buffer : nodes[i].writes) {
        size[i] += at(buffer).allocated;
        for (const int reader : at(buffer).readers) {
          add_once(successors[i], reader);
          add_once(predecessors[static_cast<std::size_t>(reader)], static_cast<int>(i));
        }
      }
    }
  }

  const ScheduledBuffer& at(int buffer) const { return buffers[static_cast<std::size_t>(buffer)]; }
  std::int64_t size_of(int node) const { return size[static_cast<std::size_t>(node)]; }
  const std::vector<int>& reads_of(int node) const { return nodes[static_cast<std::size_t>(node)].reads; }

  static void add_once(std::vector<int>& list, int item) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }
};

/// Every node behind those that `before` lists for it, in that order; without recursion, as a model's graph is thousands of nodes deep.
template <class Before>
std::vector<int> depth_first(const std::vector<int>& roots, std::size_t count, const Before& before) {
  struct Visit {
    int node;
    std::vector<int> waiting_for;
    std::size_t next = 0;
  };
  std::vector<bool> seen(count);
  std::vector<int> order;
  std::vector<Visit> path;
  const auto enter = [&](int node) {
    if (seen[static_cast<std::size_t>(node)]) return;
    seen[static_cast<std::size_t>(node)] = true;
    path.push_back({node, before(node)});
  };
  for (const int root : roots) {
    enter(root);
    while (!path.empty()) {
      Visit& visit = path.back();
      if (visit.next < visit.waiting_for.size()) {
        enter(visit.waiting_for[visit.next++]);
      } else {
        order.push_back(visit.node);
        path.pop_back();
      }
    }
  }
  return order;
}

std::vector<int> numbers_to(std::size_t count) {
  std::vector<int> all(count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Scheduler.topological_sort_schedule: depth first, what is read in the order of its names.
std::vector<int> by_name(const Planner& planner) {
  return depth_first(numbers_to(planner.nodes.size()), planner.nodes.size(), [&](int node) {
    std::vector<int> reads = planner.reads_of(node), makers;
    std::sort(reads.begin(), reads.end(), [&](int a, int b) { return planner.at(a).name < planner.at(b).name; });
    for (const int read : reads) {
      if (planner.at(read).maker >= 0) makers.push_back(planner.at(read).maker);
    }
    return makers;
  });
}

/// topological_sort_lpmf: of the nodes that may run, one below the peak so far that leaves least behind, else the smallest.
std::vector<int> least_peak_first(const Planner& p) {
  const std::size_t count = p.nodes.size();
  std::vector<std::size_t> waiting(count);
  std::vector<std::int64_t> frees(count);
  std::vector<std::size_t> uses(p.buffers.size());
  std::int64_t live = 0, results = 0;
  for (std::size_t i = 0; i < p.buffers.size(); ++i) {
    const ScheduledBuffer& buffer = p.buffers[i];
    uses[i] = buffer.readers.size() + (buffer.result ? 1 : 0);
    if (buffer.input) live += buffer.freed;
    if (buffer.result) results += buffer.freed;
  }
  std::set<int> ready;
  for (std::size_t i = 0; i < count; ++i) {
    waiting[i] = p.predecessors[i].size();
    if (waiting[i] == 0) ready.insert(static_cast<int>(i));
    for (const int read : p.nodes[i].reads) {
      if (uses[static_cast<std::size_t>(read)] == 1) frees[i] += p.at(read).freed;
    }
    for (const int write : p.nodes[i].writes) {
      if (uses[static_cast<std::size_t>(write)] == 0) frees[i] += p.at(write).freed;
    }
  }
  std::int64_t most = std::max(live, results);
  std::vector<int> order;
  while (!ready.empty()) {
    const std::int64_t gap = most - live;
    const auto cost = [&](int node) {
      const std::int64_t size = p.size_of(node);
      return std::tuple(size > gap ? size : 0, size - frees[static_cast<std::size_t>(node)], node);
    };
    const int chosen = *std::min_element(ready.begin(), ready.end(), [&](int a, int b) { return cost(a) < cost(b); });
    ready.erase(chosen);
    order.push_back(chosen);
    live += p.size_of(chosen);
    most = std::max(most, live);
    live -= frees[static_cast<std::size_t>(chosen)];
    for (const int next : p.successors[static_cast<std::size_t>(chosen)]) {
      if (--waiting[static_cast<std::size_t>(next)] == 0) ready.insert(next);
    }
    for (const int read : p.reads_of(chosen)) {
      if (--uses[static_cast<std::size_t>(read)] != 1) continue;
      for (const int reader : p.at(read).readers) frees[static_cast<std::size_t>(reader)] += p.at(read).freed;
    }
  }
  return order;
}

/// topological_sort_bfs: first what waits for the earliest.
std::vector<int> breadth_first(const Planner& p) {
  const std::size_t count = p.nodes.size();
  std::vector<std::size_t> waiting(count);
  std::vector<int> position(count, -1), order;
  std::set<std::pair<std::vector<int>, int>> ready;
  const auto add = [&](int node) {
    std::vector<int> priority;
    for (const int before : p.predecessors[static_cast<std::size_t>(node)]) priority.push_back(position[static_cast<std::size_t>(before)]);
    std::sort(priority.begin(), priority.end());
    ready.emplace(std::move(priority), node);
  };
  for (std::size_t i = 0; i < count; ++i) {
    waiting[i] = p.predecessors[i].size();
    if (waiting[i] == 0) add(static_cast<int>(i));
  }
  while (!ready.empty()) {
    const int chosen = ready.begin()->second;
    ready.erase(ready.begin());
    position[static_cast<std::size_t>(chosen)] = static_cast<int>(order.size());
    order.push_back(chosen);
    for (const int next : p.successors[static_cast<std::size_t>(chosen)]) {
      if (--waiting[static_cast<std::size_t>(next)] == 0) add(next);
    }
  }
  return order;
}

/// topological_sort_dfs: depth first, what reads and writes least first.
std::vector<int> by_size(const Planner& planner) {
  std::vector<std::int64_t> touched = planner.size;
  for (std::size_t i = 0; i < touched.size(); ++i) {
    for (const int read : planner.nodes[i].reads) touched[i] += planner.at(read).freed;
  }
  const auto sorted = [&](std::vector<int> nodes) {
    std::sort(nodes.begin(), nodes.end(), [&](int a, int b) {
      return std::pair(touched[static_cast<std::size_t>(a)], a) < std::pair(touched[static_cast<std::size_t>(b)], b);
    });
    return nodes;
  };
  return depth_first(sorted(numbers_to(touched.size())), touched.size(),
                     [&](int node) { return sorted(planner.predecessors[static_cast<std::size_t>(node)]); });
}

}  // namespace

std::vector<std::int64_t> memory_by_step(const std::vector<int>& order, const std::vector<ScheduledBuffer>& buffers) {
  std::vector<std::size_t> step(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) step[static_cast<std::size_t>(order[i])] = i;
  std::vector<std::int64_t> memory(order.size() + 1);
  for (const ScheduledBuffer& buffer : buffers) {
    const std::size_t start = buffer.input ? 0 : step[static_cast<std::size_t>(buffer.maker)];
    memory[start] += buffer.input ? buffer.freed : buffer.allocated;
    if (buffer.result) continue;
    std::size_t end = start;
    for (const int reader : buffer.readers) end = std::max(end, step[static_cast<std::size_t>(reader)]);
    memory[end + 1] -= buffer.freed;
  }
  for (std::size_t i = 1; i < memory.size(); ++i) memory[i] += memory[i - 1];
  return memory;
}

std::vector<int> schedule(const std::vector<ScheduledNode>& nodes, const std::vector<ScheduledBuffer>& buffers) {
  // The planner numbers the nodes as the first of these orders does.
  std::vector<int> first = by_name(Planner(nodes, buffers));
  std::vector<int> number(nodes.size());
  for (std::size_t i = 0; i < first.size(); ++i) number[static_cast<std::size_t>(first[i])] = static_cast<int>(i);
  std::vector<ScheduledNode> sorted;
  for (const int node : first) sorted.push_back(nodes[static_cast<std::size_t>(node)]);
  std::vector<ScheduledBuffer> renumbered = buffers;
  for (ScheduledBuffer& buffer : renumbered) {
    if (buffer.maker >= 0) buffer.maker = number[static_cast<std::size_t>(buffer.maker)];
    for (int& reader : buffer.readers) reader = number[static_cast<std::size_t>(reader)];
  }
  const Planner planner(sorted, renumbered);
  std::vector<int> best;
  std::int64_t least = 0;
  std::vector<std::vector<int>> orders{numbers_to(nodes.size()), least_peak_first(planner), breadth_first(planner), by_size(planner)};
  for (std::vector<int>& order : orders) {
    const std::vector<std::int64_t> memory = memory_by_step(order, renumbered);
    const std::int64_t peak = *std::max_element(memory.begin(), memory.end());
    if (!best.empty() && peak >= least) continue;
    least = peak;
    best = std::move(order);
  }
  for (int& node : best) node = first[static_cast<std::size_t>(node)];
  return best;
}

}  // namespace plimsoll::program::inductor
