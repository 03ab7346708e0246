package forebay.compat.v5;

import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo;
import org.apache.rocketmq.store.CommitLog.GroupCommitRequest;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.ha.HAClient;
import org.apache.rocketmq.store.ha.HAConnection;
import org.apache.rocketmq.store.ha.HAConnectionStateNotificationRequest;
import org.apache.rocketmq.store.ha.HAService;
import org.apache.rocketmq.store.ha.WaitNotifyObject;

/** A replication service without replicas; RocketMQ's own listens on all interfaces. */
public final class NoReplication implements HAService {
    private final WaitNotifyObject waitNotify = new WaitNotifyObject();

    @Override
    public void init(DefaultMessageStore store) {
    }

    @Override
    public void start() {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public void updateMasterAddress(String address) {
    }

    @Override
    public void updateHaMasterAddress(String address) {
    }

    @Override
    public int inSyncReplicasNums(long masterEnd) {
        return 1;
    }

    @Override
    public AtomicInteger getConnectionCount() {
        return new AtomicInteger();
    }

    @Override
    public void putRequest(GroupCommitRequest request) {
    }

    @Override
    public void putGroupConnectionStateRequest(HAConnectionStateNotificationRequest request) {
    }

    @Override
    public List<HAConnection> getConnectionList() {
        return List.of();
    }

    @Override
    public HAClient getHAClient() {
        return null;
    }

    @Override
    public AtomicLong getPush2SlaveMaxOffset() {
        return new AtomicLong();
    }

    @Override
    public HARuntimeInfo getRuntimeInfo(long masterEnd) {
        return new HARuntimeInfo();
    }

    @Override
    public WaitNotifyObject getWaitNotifyObject() {
        return waitNotify;
    }

    @Override
    public boolean isSlaveOK(long masterEnd) {
        return false;
    }
}
