// SPDX-License-Identifier: Apache-2.0
// Inspection: the engine's state for people to look at: its requests, the use of its pools, and the
// prefix tree with the part that a given prompt would reuse.
//
// All data are bounded copies, made between two steps without stopping the engine.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <heddle/request.h>

namespace heddle {

// Limits of the copy.
struct InspectionOptions {
  int64_t max_requests = 100;    // the oldest ones
  int64_t max_nodes = 500;       // most nodes of the prefix tree: the prompt's path and the most
                                 // recently used ones, each with all nodes above it
  int64_t max_node_tokens = 24;  // the first ones of each node

  std::vector<TokenId> prompt;  // to look up in the prefix tree; empty: none
  std::string cache_namespace;  // namespace of the prompt (Request::cache_namespace)
};

enum class RequestPhase {
  kWaiting,  // owns no memory: not started, or retracted
  kPrefill,  // its prompt is being computed
  kDecode,   // draws tokens
};

struct RequestView {
  std::string id;
  RequestPhase phase = RequestPhase::kWaiting;
  std::optional<int64_t> priority;
  std::string tenant;
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;  // prompt and output tokens in memory
  int64_t cached_tokens = 0;    // prompt tokens that were reused; 0 until it starts
  int64_t output_tokens = 0;
  int64_t max_new_tokens = 0;
  int64_t num_returns = 0;  // retractions, for memory or a more urgent request
  double age_seconds = 0;   // since submit()
};

// A pool of equal pieces of memory. Free pieces are the rest of `total`; if pools share memory
// (MemoryPlan::shared_pool_bytes), fewer may be available.
struct PoolView {
  int64_t total = 0;
  int64_t requests = 0;    // used only by requests
  int64_t shared = 0;      // of the prefix tree and used by requests: cannot be evicted
  int64_t cached = 0;      // only of the prefix tree: evicted when needed
  int64_t bytes_each = 0;  // in all layers; 0: not known
  int64_t evicted = 0;     // since the start; pages are counted in tokens
};

// A node of the prefix tree: an edge of tokens with all their KV. Only nodes with has_state have a
// recurrent state; at others a sequence of a recurrent model can share rows but not resume.
struct PrefixNodeView {
  int64_t id = 0;      // unique while the node lives
  int64_t parent = 0;  // 0: the parent is a root, which is not listed
  std::string name_space;
  int64_t begin = 0;            // tokens before the edge
  int64_t num_tokens = 0;       // length of the edge
  std::vector<TokenId> tokens;  // leading tokens of the edge
  int64_t num_children = 0;     // shown or not
  bool has_state = false;
  int64_t num_uses = 0;     // sequences that ended or resumed at the state
  int64_t locks = 0;        // of sequences on this node and below it, including those on its state
  int64_t state_locks = 0;  // of sequences on its state
  int64_t idle_ticks = 0;   // insertions and uses of the tree since this node's last use
};

struct PrefixTreeView {
  bool needs_state = false;  // the model has recurrent states
  int64_t num_nodes = 0;     // in all, shown or not
  int64_t num_tokens = 0;
  int64_t num_states = 0;
  std::vector<PrefixNodeView> nodes;  // parents before their children
};

// The tokens that the prompt would find cached if it were submitted now.
struct PromptReuse {
  int64_t prompt_tokens = 0;
  int64_t matched_tokens = 0;  // prompt tokens whose KV rows are cached
  int64_t reused_tokens = 0;   // prompt tokens that would be reused
  bool exact_repeat = false;   // not even the last token would be computed
  std::vector<int64_t> path;   // ids of the matching nodes, from the root
};

struct Inspection {
  int64_t num_requests = 0;  // in all, shown or not
  std::vector<RequestView> requests;

  int32_t page_size = 0;  // tokens of a KV page
  PoolView kv_pages;
  PoolView states;        // state slots and snapshot slots; total 0: the model has none
  PoolView window_pages;  // total 0: there are none; bytes of one: of the narrowest window

  PrefixTreeView tree;
  std::optional<PromptReuse> reuse;  // reuse of the prompt, if one was given
};

}  // namespace heddle
