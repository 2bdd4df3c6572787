// SPDX-License-Identifier: Apache-2.0
// Every invariant that the tree's parts prove is broken once on purpose: a proof that cannot fail
// proves nothing. The numbers are those of prefix_tree.h.
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

// A chain of two states with a fork below the first, in pages of four tokens:
//   [0,10)@10
//     [10,20)@20
//     [10,20)@20
struct SmallTree {
  SmallTree() : fixture({.page_size = 4, .num_pages = 100, .num_states = 10}) {
    const Tokens chain = fixture.unique(20);
    fixture.insert(chain, 10);
    fixture.insert(chain, 20);
    const Tokens other = joined(first(chain, 10), fixture.unique(10));
    fixture.insert(other);
    fixture.tree.check_invariants(true);
    leaf = fixture.match(chain).resume;
    fork = fixture.match(other).resume;
    top = leaf->parent;
  }

  TreeFixture fixture;
  PrefixNode* leaf = nullptr;
  PrefixNode* fork = nullptr;
  PrefixNode* top = nullptr;
};

struct Defect {
  const char* name;
  std::function<void(SmallTree&)> put_in;
  const char* message;
  bool idle = true;
};

void PrintTo(const Defect& defect, std::ostream* out) { *out << defect.name; }

class PrefixTreeInvariantsDeathTest : public ::testing::TestWithParam<Defect> {};

TEST_P(PrefixTreeInvariantsDeathTest, IsFound) {
  SmallTree small;
  EXPECT_DEATH(
      {
        GetParam().put_in(small);
        small.fixture.tree.check_invariants(GetParam().idle);
      },
      GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Defects, PrefixTreeInvariantsDeathTest,
    ::testing::Values(
        Defect{"I1SiblingsOutOfOrder",
               [](SmallTree& small) { std::swap(small.top->children[0], small.top->children[1]); },
               "front"},
        Defect{"I1ChildBeginsElsewhere", [](SmallTree& small) { ++small.leaf->begin; }, "begin"},
        Defect{"I1TokensChanged", [](SmallTree& small) { ++small.leaf->tokens.back(); }, "hash"},
        Defect{"I2EdgeWithoutItsLastPage", [](SmallTree& small) { small.leaf->pages.pop_back(); },
               "end_page"},
        Defect{"I3PageWithTwoOwners",
               [](SmallTree& small) { small.leaf->pages.back() = small.top->pages.back(); },
               "census.owned.insert"},
        Defect{"I3PageFreedBehindTheTree",
               [](SmallTree& small) {
                 small.fixture.pages.ids().free_one(small.leaf->pages.back().id);
               },
               "owner"},
        Defect{"I3SlotWithTwoOwners",
               [](SmallTree& small) { small.fork->state = small.leaf->state; }, "slots.insert"},
        Defect{"I4LocksThatAreNotCounted",
               [](SmallTree& small) {
                 ++small.leaf->locks;
                 ++small.top->locks;
               },
               "evictable_pages", /*idle=*/false},
        Defect{"I4StatesThatAreNotCounted",
               [](SmallTree& small) {
                 small.fixture.states.release(small.top->state.slot);
                 small.top->state = {};
               },
               "states"},
        Defect{"I5FewerLocksThanBelow",
               [](SmallTree& small) {
                 (void)small.fixture.tree.lock(small.leaf, false);
                 --small.top->locks;
               },
               "locks"},
        Defect{"I5LockOnAnIdleTree",
               [](SmallTree& small) { (void)small.fixture.tree.lock(small.leaf, true); }, "locks"},
        Defect{"I6LeafWithoutAState",
               [](SmallTree& small) {
                 small.fixture.states.release(small.leaf->state.slot);
                 small.leaf->state = {};
               },
               "0 < node.locks"},
        Defect{"I7KeyOfAnotherTime", [](SmallTree& small) { small.leaf->state_uses.count += 1; },
               "score_"},
        Defect{"I7NotListed", [](SmallTree& small) { small.leaf->state_key.reset(); }, "state_key"},
        Defect{"I8LabelIsNotTheDepth",
               [](SmallTree& small) { small.fixture.states.set_label(small.leaf->state.slot, 19); },
               "label"},
        Defect{"I11SlotTakenFromTheTree",
               [](SmallTree& small) {
                 small.fixture.states.ids().move(small.leaf->state.slot, Owner::kTree,
                                                 Owner::kRequest);
               },
               "kTree"},
        Defect{"I14SlotGivenToAnother", [](SmallTree& small) { ++small.leaf->state.generation; },
               "generation"},
        Defect{"I14PageGivenToAnother",
               [](SmallTree& small) { ++small.leaf->pages.back().generation; }, "generation"}),
    [](const auto& defect) { return std::string(defect.param.name); });

}  // namespace
}  // namespace heddle::cache
