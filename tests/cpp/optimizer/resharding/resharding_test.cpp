#include "optimizer/resharding/resharding.h"

#include <gtest/gtest.h>

#include "optimizer/resharding/resharding_problems.h"

namespace joinsum::optimizer::resharding {
namespace {

/// The least cost of resharding `value` plus what its members charge, over all layouts of its members.
double enumerated(const ReshardingProblem::Value& value, const Resharding::Messages& messages, size_t fixed,
                  size_t layout) {
  std::vector<size_t> at(messages.size(), 0);
  double least = min_sum::kForbidden;
  while (true) {
    if (at[fixed] == layout) {
      double sum = resharding_cost(*value.routes, at[0], {at.begin() + 1, at.end()}).cost;
      for (size_t member = 0; member < at.size(); ++member) sum += member == fixed ? 0 : messages[member][at[member]];
      least = std::min(least, sum);
    }
    size_t member = 0;
    while (member < at.size() && ++at[member] == messages[member].size()) at[member++] = 0;
    if (member == at.size()) return least;
  }
}

TEST(Resharding, MessagesAreTheLeastCostsOverAllLayoutsOfTheOthers) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomReshardings random(seed);
    const ReshardingProblem problem = random.problem(4, 1, 4);
    const ReshardingProblem::Value& value = problem.values[0];
    MessageCache cache;
    const Resharding resharding(value.routes, value.members.size() - 1, &cache);
    Resharding::Messages messages(value.members.size());
    for (size_t member = 0; member < messages.size(); ++member) {
      for (size_t layout = 0; layout < resharding.layouts(member); ++layout)
        messages[member].push_back(static_cast<double>(random.below(9)));
    }
    double least = min_sum::kForbidden;
    for (size_t member = 0; member < messages.size(); ++member) {
      const auto message = resharding.message_to(member, messages);
      for (size_t layout = 0; layout < message.size(); ++layout) {
        EXPECT_EQ(message[layout], enumerated(value, messages, member, layout)) << "seed " << seed;
        if (member == 0) least = std::min(least, message[layout] + messages[0][layout]);
      }
    }
    EXPECT_EQ(resharding.least(messages), least) << "seed " << seed;
  }
}

}  // namespace
}  // namespace joinsum::optimizer::resharding
