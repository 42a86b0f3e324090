#include "ia/analysis/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ia/analysis/flops.h"
#include "ia/analysis/volume.h"

namespace joinsum::ia::analysis {
namespace {

// Fixed rates.
constexpr double kFlopsPerSecond = 5e10;
constexpr double kBytesComputedPerSecond = 4e9;
constexpr double kSecondsOfNode = 1e-5;
constexpr double kSecondsOfStage = 3e-4;
constexpr double kBytesSentPerSecond = 5e8;

/// A group starts when its messages take so many times the latency of a stage.
constexpr int64_t kLatenciesOfGroup = 14;
/// A move waits for others to travel with until it is only early by so many times what it takes.
constexpr int64_t kLeastSlack = 4;
/// A move of an input starts so many levels before its reader.
constexpr int64_t kLevelsAhead = 16;
/// Where sites know how long moves take, readers of a move run after so many times that: a site that waits for a late
/// message does nothing, and one that is early can wait.
constexpr int64_t kPatience = 3;
/// Nodes of so many later levels may run while earlier ones wait.
constexpr int64_t kMostLevelsAhead = 48;

/// A value that the executor stores.
struct Item {
  const Node* node = nullptr;
  bool move = false;
  std::vector<size_t> operands;  ///< and what must come before for another reason
  std::vector<size_t> users;
  int64_t stages = 0;            ///< of a move
  int64_t nanoseconds = 0;       ///< from its start to its end; of a move that travels alone
  int64_t site_nanoseconds = 0;  ///< but for a move's latency
  // Of a move.
  int64_t latency_nanoseconds = 0;       ///< of a stage, in which the site can compute
  int64_t site_latency_nanoseconds = 0;  ///< of a stage, in which it cannot
  int64_t link_nanoseconds = 0;          ///< of its bytes, in which the site can compute
  int64_t level = 0;                     ///< the order of nodes
  int64_t rest = 0;                      ///< nanoseconds from this one's start to the last one's end
};

Volume volume_of(const Node& move) { return volume(move.input(0)->type(), move.type()); }

/// With those of the values that are computed with `node`.
int64_t flops_of(const Node& node, const Materialization& materialization) {
  if (const Node* added = materialization.added_by(node)) return flops_of(*added, materialization);
  const bool fused = node.as<LocalAggregate>() != nullptr && materialization.fused(*node.input(0));
  return busiest_flops(node, fused) + (fused ? busiest_flops(*node.input(0), false) : 0);
}

NodeSeconds by_fixed_rates(const Node& node, const Materialization& materialization) {
  if (node.as<Input>() != nullptr) return {};
  if (is_move(node.operation())) {
    const int64_t bytes = node.type().relation.bytes_of(volume_of(node).busiest);
    return {.latency = kSecondsOfStage, .link = static_cast<double>(bytes) / kBytesSentPerSecond};
  }
  const auto flops = static_cast<double>(flops_of(node, materialization));
  int64_t bytes = node.type().most_bytes();
  for (const Node* operand : materialization.operands(node)) bytes += operand->type().most_bytes();
  return {.site = kSecondsOfNode + flops / kFlopsPerSecond + static_cast<double>(bytes) / kBytesComputedPerSecond};
}

/// Whole numbers, so that orders by sums of them are exact.
int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// Seconds of values that are not stored: each stored value that reads them computes them again. Fixed rates count them
/// with their readers.
class Unstored {
 public:
  explicit Unstored(const SecondsOf& seconds_of) : seconds_of_(seconds_of) {}

  void add(const Node& node) {
    if (seconds_of_) seconds_.emplace(&node, seconds_of_(node).site + read_by(node));
  }

  double read_by(const Node& node) const {
    std::unordered_set<const Node*> counted;
    double seconds = 0;
    for (const NodePtr& input : node.inputs()) {
      const auto found = seconds_.find(input.get());
      if (found != seconds_.end() && counted.insert(input.get()).second) seconds += found->second;
    }
    return seconds;
  }

 private:
  const SecondsOf& seconds_of_;
  std::unordered_map<const Node*, double> seconds_;
};

/// The stored values of a plan, in its order, as a graph.
class Items {
 public:
  Items(const Plan& plan, const Materialization& materialization, const SecondsOf& seconds_of)
      : patience_(seconds_of ? kPatience : 1) {
    Unstored unstored(seconds_of);
    for (const NodePtr& node : plan.order()) {
      if (!materialization.materialized(*node)) {
        unstored.add(*node);
        continue;
      }
      numbers_.emplace(node.get(), items_.size());
      Item item{node.get(), is_move(node->operation()), {}, {}};
      for (const Node* operand : materialization.operands(*node)) item.operands.push_back(numbers_.at(operand));
      const NodeSeconds seconds = seconds_of ? seconds_of(*node) : by_fixed_rates(*node, materialization);
      item.site_nanoseconds = nanoseconds(seconds.site + unstored.read_by(*node));
      item.nanoseconds = item.site_nanoseconds;
      if (item.move) {
        item.stages = std::max<int64_t>(volume_of(*node).stages, 1);
        item.latency_nanoseconds = nanoseconds(seconds.overlap * seconds.latency);
        item.site_latency_nanoseconds = nanoseconds((1 - seconds.overlap) * seconds.latency);
        item.link_nanoseconds = nanoseconds(seconds.overlap * seconds.link);
        item.site_nanoseconds += nanoseconds((1 - seconds.overlap) * seconds.link);
        item.nanoseconds = item.site_nanoseconds + item.link_nanoseconds +
                           item.stages * (item.latency_nanoseconds + item.site_latency_nanoseconds);
      }
      items_.push_back(std::move(item));
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      for (const Node* further : materialization.results_beside(*items_[i].node)) {
        Item& item = items_[numbers_.at(further)];
        item.operands.push_back(i);
        item.nanoseconds = item.site_nanoseconds = 0;
      }
    }
    add_readers_of_overwritten_inputs(plan);
    for (size_t i = 0; i < items_.size(); ++i) {
      std::vector<size_t>& operands = items_[i].operands;
      std::sort(operands.begin(), operands.end());
      operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
      for (const size_t operand : operands) items_[operand].users.push_back(i);
    }
    add_times();
    add_levels();
  }

  const std::vector<Item>& all() const { return items_; }
  int64_t patience() const { return patience_; }
  bool any_move() const {
    return std::any_of(items_.begin(), items_.end(), [](const Item& item) { return item.move; });
  }
  /// When a move should start, so that it is early by some times what it takes.
  int64_t deadline(const Item& item) const { return longest_ - item.rest - kLeastSlack * item.nanoseconds; }

 private:
  /// The node of an output comes after the earlier readers of the input that it may overwrite.
  void add_readers_of_overwritten_inputs(const Plan& plan) {
    std::unordered_map<std::string, size_t> inputs;
    std::unordered_map<size_t, std::vector<size_t>> readers;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (const auto* input = items_[i].node->as<Input>()) inputs.emplace(input->name, i);
      for (const size_t operand : items_[i].operands) readers[operand].push_back(i);
    }
    for (const auto& output : plan.outputs()) {
      if (!output.tied_input || !inputs.contains(*output.tied_input)) continue;
      const size_t writer = numbers_.at(output.node.get());
      for (const size_t reader : readers[inputs.at(*output.tied_input)]) {
        if (reader < writer) items_[writer].operands.push_back(reader);
      }
    }
  }

  void add_times() {
    for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
      for (const size_t i : item->users) item->rest = std::max(item->rest, items_[i].rest);
      item->rest += item->nanoseconds;
      longest_ = std::max(longest_, item->rest);
    }
    int64_t all = 0;
    for (const Item& item : items_) all += item.move ? 0 : item.nanoseconds;
    longest_ = std::max(longest_, all);
  }

  /// As soon as operands permit, and then as late as the readers' levels permit. A move has its operand's level.
  void add_levels() {
    for (Item& item : items_) {
      for (const size_t i : item.operands) item.level = std::max(item.level, items_[i].level + (item.move ? 0 : 1));
    }
    for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
      int64_t latest = std::numeric_limits<int64_t>::max();
      for (const size_t i : item->users) latest = std::min(latest, items_[i].level - (items_[i].move ? 0 : 1));
      if (item->users.empty()) continue;
      item->level = std::max(item->level, item->move ? latest - kLevelsAhead : latest);
    }
  }

  std::vector<Item> items_;
  std::unordered_map<const Node*, size_t> numbers_;
  int64_t patience_ = 1;
  int64_t longest_ = 0;  ///< nanoseconds that the plan takes at least
};

/// A group under way.
struct Underway {
  size_t group = 0;
  std::vector<size_t> items;
  int64_t stages = 0;  ///< left
  int64_t site_nanoseconds = 0;
  int64_t stage_nanoseconds = 0;
  int64_t arrives = 0;  ///< the messages of its stage
};

class Simulation {
 public:
  Simulation(const Items& items, std::vector<Task>& tasks, std::vector<MoveGroup>& groups)
      : items_(items), all_(items.all()), tasks_(tasks), groups_(groups), missing_(all_.size()), done_(all_.size()) {
    for (size_t i = 0; i < all_.size(); ++i) order_.push_back(i);
    std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    for (size_t i = 0; i < all_.size(); ++i) {
      missing_[i] = all_[i].operands.size();
      if (missing_[i] == 0) ready_.insert(key(i));
    }
  }

  void run() {
    while (true) {
      advance_arrived();
      const auto next = next_ready();
      if (next && clock_ + all_[*next].nanoseconds <= deadline_) {
        perform(*next);
      } else if (!waiting_.empty()) {
        start_waiting();
      } else if (!underway_.empty()) {
        wait();
      } else {
        return;
      }
    }
  }

  /// When the last task ends, if moves take the time that they take, and a site waits where it reads one.
  int64_t end() const {
    std::vector<int64_t> arrives(all_.size());
    int64_t clock = 0;
    int64_t link_free = 0;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      if (tasks_[t].kind == Task::Kind::kCompute) {
        const Item& item = all_[items_of_tasks_[t]];
        for (const size_t operand : item.operands) clock = std::max(clock, arrives[operand]);
        clock += item.nanoseconds;
      } else if (tasks_[t].kind == Task::Kind::kStart) {
        const Underway& group = started_[tasks_[t].group];
        clock += group.site_nanoseconds;
        link_free = std::max(link_free, clock) + group.stages * group.stage_nanoseconds;
        for (const size_t item : group.items) arrives[item] = link_free;
      }
    }
    return std::max(clock, link_free);
  }

 private:
  using Key = std::tuple<int64_t, bool, bool, int64_t, size_t>;
  /// Moves first, then what they move, then what more depends on.
  Key key(size_t i) const {
    const auto& users = all_[i].users;
    const bool moved = std::any_of(users.begin(), users.end(), [&](size_t user) { return all_[user].move; });
    return {all_[i].level, !all_[i].move, !moved, -all_[i].rest, i};
  }

  std::optional<size_t> next_ready() {
    if (ready_.empty()) return std::nullopt;
    while (first_ < order_.size() && done_[order_[first_]]) ++first_;
    const size_t item = std::get<4>(*ready_.begin());
    if (all_[item].level > all_[order_[first_]].level + kMostLevelsAhead) return std::nullopt;
    return item;
  }

  void perform(size_t i) {
    ready_.erase(key(i));
    done_[i] = true;
    const Item& item = all_[i];
    if (!item.move) {
      add_task({Task::Kind::kCompute, item.node}, i);
      clock_ += item.nanoseconds;
      return release(i);
    }
    const bool hides = item.latency_nanoseconds + item.link_nanoseconds > 0;
    if (hides && clock_ > items_.deadline(item)) return start({i});
    waiting_.push_back(i);
    if (hides) deadline_ = std::min(deadline_, items_.deadline(item));
    waiting_nanoseconds_ += item.link_nanoseconds;
    const int64_t latency = item.latency_nanoseconds + item.site_latency_nanoseconds;
    if (waiting_nanoseconds_ >= std::max<int64_t>(kLatenciesOfGroup * latency, 1)) start_waiting();
  }

  /// The users of an item that is there may run.
  void release(size_t i) {
    for (const size_t user : all_[i].users) {
      if (--missing_[user] == 0) ready_.insert(key(user));
    }
  }

  void start_waiting() {
    waiting_nanoseconds_ = 0;
    deadline_ = std::numeric_limits<int64_t>::max();
    start(std::exchange(waiting_, {}));
  }

  void start(std::vector<size_t> items) {
    Underway group{groups_.size(), std::move(items)};
    MoveGroup nodes;
    int64_t latency = 0;
    int64_t site_latency = 0;
    int64_t link = 0;
    for (const size_t i : group.items) {
      nodes.push_back(all_[i].node);
      group.stages = std::max(group.stages, all_[i].stages);
      latency = std::max(latency, all_[i].latency_nanoseconds);
      site_latency = std::max(site_latency, all_[i].site_latency_nanoseconds);
      link += all_[i].link_nanoseconds;
      group.site_nanoseconds += all_[i].site_nanoseconds;
    }
    group.site_nanoseconds += group.stages * site_latency;
    clock_ += group.site_nanoseconds;
    groups_.push_back(std::move(nodes));
    group.stage_nanoseconds = latency + link / group.stages;
    send(group);
    add_task({Task::Kind::kStart, nullptr, group.group});
    started_.push_back(group);
    underway_.push_back(std::move(group));
  }

  /// Messages queue for the link.
  void send(Underway& group) {
    link_free_ = std::max(link_free_, clock_) + group.stage_nanoseconds;
    group.arrives = link_free_ + (items_.patience() - 1) * group.stage_nanoseconds;
  }

  void advance_arrived() {
    for (size_t i = 0; i < underway_.size();) {
      if (underway_[i].arrives > clock_) {
        ++i;
      } else if (--underway_[i].stages > 0) {
        add_task({Task::Kind::kAdvance, nullptr, underway_[i].group});
        send(underway_[i]);
        ++i;
      } else {
        add_task({Task::Kind::kFinish, nullptr, underway_[i].group});
        for (const size_t item : underway_[i].items) release(item);
        underway_.erase(underway_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  /// Until the next messages arrive.
  void wait() {
    const auto next = std::min_element(underway_.begin(), underway_.end(),
                                       [](const Underway& a, const Underway& b) { return a.arrives < b.arrives; });
    clock_ = std::max(clock_, next->arrives);
  }

  void add_task(const Task& task, size_t item = 0) {
    tasks_.push_back(task);
    items_of_tasks_.push_back(item);
  }

  const Items& items_;
  const std::vector<Item>& all_;
  std::vector<Task>& tasks_;
  std::vector<MoveGroup>& groups_;
  std::vector<size_t> items_of_tasks_;  ///< of kCompute
  std::vector<Underway> started_;       ///< by group, as they start
  std::vector<size_t> order_;           ///< of the items, by key
  size_t first_ = 0;                    ///< all before it in `order_` are done
  std::vector<size_t> missing_;         ///< operands that are not there, by item
  std::vector<bool> done_;              ///< moves: handed over to a group
  std::set<Key> ready_;
  std::vector<size_t> waiting_;                             ///< moves of the next group
  int64_t waiting_nanoseconds_ = 0;                         ///< that they take
  int64_t deadline_ = std::numeric_limits<int64_t>::max();  ///< of the first of them
  std::vector<Underway> underway_;
  int64_t clock_ = 0;
  int64_t link_free_ = 0;
};

}  // namespace

Schedule::Schedule(const Plan& plan, const Materialization& materialization, const SecondsOf& seconds_of) {
  const Items items(plan, materialization, seconds_of);
  int64_t end = 0;
  if (items.any_move()) {
    Simulation simulation(items, tasks_, groups_);
    simulation.run();
    end = simulation.end();
  } else {
    for (const Item& item : items.all()) {
      tasks_.push_back({Task::Kind::kCompute, item.node});
      end += item.nanoseconds;
    }
  }
  seconds_ = static_cast<double>(end) * 1e-9;
}

}  // namespace joinsum::ia::analysis
