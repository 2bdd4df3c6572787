// SPDX-License-Identifier: Apache-2.0
// StoredResponse: an answer of /v1/responses as ResponseStore keeps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace heddle::server {

struct StoredResponse {
  // A delta of a response that was streamed: the bytes of text and the logprobs that it had.
  struct Cut {
    uint32_t num_bytes = 0;
    uint32_t num_logprobs = 0;
  };

  std::string body;  // as GET answers it
  // The items of the chat before the answer, a list, without instructions. Shared by a response
  // that runs, what it comes to and the call, which ends on another thread.
  std::shared_ptr<const nlohmann::ordered_json> input;
  nlohmann::ordered_json output;  // the answer's items, a list; null while there are none
  size_t input_bytes = 0;         // of `input` as JSON
  std::string holder;             // name of the key that may see it; "" without one
  bool is_running = false;        // in the background: what it comes to will take its place
  std::vector<Cut> cuts = {};     // of all items, in order; empty: it was not streamed
};

}  // namespace heddle::server
