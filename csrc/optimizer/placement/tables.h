#pragma once

#include <bit>
#include <optional>
#include <unordered_map>
#include <vector>

#include "optimizer/placement/lowering.h"
#include "optimizer/search/min_sum.h"

namespace joinsum::optimizer {

/// The bytes of the site that holds most.
double busiest_bytes(const ia::PhysicalType& type);

/// What takes each value: by vertex.
struct Readers {
  std::vector<int64_t> operands;  ///< that it is
  std::vector<int64_t> ends;      ///< outputs that it is, but for those told where to end
  std::vector<bool> tied;         ///< whether one of these is tied to an input

  Readers(const tra::Plan& plan, const PlacementDemands& demands, const std::vector<Vertex>& vertices);
};

/// The min-sum problem of a placement: a variable for how each vertex runs, another one for where its value may be
/// taken from, and tables of what moves between these cost.
class PlacementTables {
 public:
  PlacementTables(const tra::Plan& plan, const PlacementDemands& demands, PlacementMemory& memory,
                  const std::vector<Vertex>& vertices, const Readers& readers);

  /// Whether the places that each value may be taken from are all that there are; told before `make`.
  bool whole() const;
  /// Lists these places and prices the moves between them, once.
  void make();
  /// `costs` by vertex and mode.
  MinSumProblem problem(std::vector<std::vector<double>> costs) const;
  /// Of values of the problem's variables.
  std::vector<size_t> modes(const std::vector<int64_t>& values) const;
  Choice choice(const std::vector<int64_t>& values) const;

 private:
  /// Where a value may be taken from: where it was made, and where it was put; equal if it stays.
  struct State {
    const Place* made = nullptr;  ///< null: it is taken from where it was put
    const Place* put = nullptr;
  };
  struct Table {
    int64_t first;
    int64_t second;
    MinSumProblem::Entries costs;
  };
  /// Which states a value has.
  enum class Kind { kEnd, kStays, kSettles, kBeside, kPut };

  /// What a table's costs follow from: layouts, and other numbers.
  class Key {
   public:
    void add(const Place* place) { words_.push_back(reinterpret_cast<std::uintptr_t>(place)); }
    void add(double number) { words_.push_back(std::bit_cast<uint64_t>(number)); }
    void add(const std::vector<State>& states) {
      for (const State& state : states) {
        add(state.made);
        add(state.put);
      }
      end();
    }
    void end() { words_.push_back(kEnd); }
    bool operator==(const Key&) const = default;
    struct Hash {
      size_t operator()(const Key& key) const {
        uint64_t out = key.words_.size();
        for (const uint64_t word : key.words_) out = (out ^ (word >> 4)) * 0x9E3779B97F4A7C15ULL;
        return out;
      }
    };

   private:
    static constexpr uint64_t kEnd = 1;  // no place's address
    std::vector<uint64_t> words_;
  };

  /// Variables of vertex v.
  static int64_t mode_of(int64_t v) { return 2 * v; }
  static int64_t state_of(int64_t v) { return 2 * v + 1; }

  const ia::Placement* pin_of(const Vertex& vertex) const;
  Kind kind_of(size_t v) const;
  void make_states(int64_t v);
  void add_state_costs(int64_t v);
  const Place* settled_from(int64_t v, const Place* made);
  void add_states(int64_t v, const Place* made, std::vector<State>& states);
  void make_tables();
  void join_results_of_calls();
  void add_table(int64_t first, int64_t second, Key key, const auto& entries);
  void add_own_table(int64_t v);
  void add_edge_table(int64_t v, size_t operand);
  void add_output(const tra::Plan::Output& output);
  double kept(const Place* put) const;
  double move(const Place& from, const Place& to) const { return memory_.moves(from, to); }

  const tra::Plan& plan_;
  const PlacementDemands& demands_;
  PlacementMemory& memory_;
  const std::vector<Vertex>& vertices_;
  const Readers& readers_;
  std::unordered_map<const tra::Node*, int64_t> number_;
  std::vector<std::vector<const Place*>> made_;  ///< places in which a value is made
  std::vector<std::vector<State>> states_;
  std::vector<std::vector<double>> state_costs_;
  std::vector<Table> tables_;
  std::unordered_map<Key, MinSumProblem::Entries, Key::Hash> known_tables_;
};

}  // namespace joinsum::optimizer
