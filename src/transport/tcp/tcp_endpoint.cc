#include "transport/tcp/tcp_endpoint.h"

#include <utility>

#include "os/net/socket.h"
#include "transport/tcp/connection_table.h"
#include "transport/tcp/tcp_receiver.h"
#include "transport/tcp/tcp_sender.h"

namespace qccl {
namespace {

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(os::Poller& poller, const TcpOptions& options)
      : Endpoint(poller, options.token_space),
        options_(options),
        connections_(poller, token(0), shared_),
        sender_(shared_, connections_),
        receiver_(shared_, connections_, options.receive_queue_bytes) {}
  ~TcpEndpoint() override { TcpEndpoint::close(); }

  Status open(std::vector<os::Fd> sockets_by_rank) {
    for (std::size_t rank = 0; rank < sockets_by_rank.size(); ++rank) {
      if (!sockets_by_rank[rank].valid()) continue;
      QCCL_TRY(os::set_no_delay(sockets_by_rank[rank]));
      if (is_local(WorldRank(rank))) os::set_loopback_congestion_control(sockets_by_rank[rank]);
    }
    QCCL_TRY(connections_.open(std::move(sockets_by_rank), options_.send_queue_bytes, options_.max_directly_read));
    receiver_.prepare();
    return {};
  }

  Bytes reserve(WorldRank peer, std::size_t max_bytes, TrafficClass traffic) override {
    return sender_.reserve(connections_.at(peer), max_bytes, traffic);
  }
  void commit(std::size_t actual_bytes) override { sender_.commit(actual_bytes, {}); }
  bool commit_gathered(std::size_t head_bytes, ConstBytes payload) override {
    sender_.commit(head_bytes, payload);
    return true;
  }
  std::optional<ReceivedFrame> receive() override { return receiver_.receive(); }
  void release(const ReceivedFrame& frame) override {
    shared_.pool.put_back(static_cast<tcp::FrameBuffer*>(frame.slot));
  }
  void set_placement(PayloadPlacement* placement) override { receiver_.set_placement(placement); }
  void withdraw() override { receiver_.withdraw(); }
  bool progress() override {
    sender_.end_burst();
    bool moved = sender_.flush();
    moved |= connections_.close_ended();
    moved |= receiver_.read();
    return moved;
  }
  std::optional<PeerLoss> next_loss() override { return receiver_.next_loss(); }
  void disconnect(WorldRank peer) override {
    receiver_.forget_loss(connections_.at(peer));
    connections_.end(connections_.at(peer));
  }

  bool arm() override {
    if (receiver_.has_news()) return false;
    sender_.flush();
    return connections_.watch_unsent();
  }
  void disarm() override {}
  void ready(const os::Poller::Ready&) override {}  // progress() checks every socket that may be ready

  bool is_local(WorldRank peer) const override {
    return peer.index() < options_.on_this_host.size() && options_.on_this_host[peer.index()];
  }
  const char* kind(WorldRank) const override { return "tcp"; }
  bool flushed() const override { return sender_.flushed(); }
  void close() override { connections_.close_all(); }

 private:
  const TcpOptions options_;
  tcp::SharedBuffers shared_;
  tcp::ConnectionTable connections_;
  tcp::TcpSender sender_;
  tcp::TcpReceiver receiver_;
};

}  // namespace

Result<std::unique_ptr<Endpoint>> make_tcp_endpoint(os::Poller& poller, const TcpOptions& options,
                                                    std::vector<os::Fd> sockets_by_rank) {
  auto endpoint = std::make_unique<TcpEndpoint>(poller, options);
  QCCL_TRY(endpoint->open(std::move(sockets_by_rank)));
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace qccl
