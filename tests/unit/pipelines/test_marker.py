from pipelines.marker import Ending, Marker


def test_before_the_first_run_nothing_is_known(tmp_path):
    marker = Marker(tmp_path, boot_id="a")
    assert marker.last() is None
    assert not marker.machine_went_down()


def test_a_kill_is_no_power_cut(tmp_path):
    Marker(tmp_path, boot_id="a").started()
    assert not Marker(tmp_path, boot_id="a").machine_went_down()


def test_a_run_that_never_ended_before_another_boot_went_down_with_the_machine(tmp_path):
    Marker(tmp_path, boot_id="a").started()
    assert Marker(tmp_path, boot_id="b").machine_went_down()


def test_a_clean_stop_survives_a_reboot(tmp_path):
    marker = Marker(tmp_path, boot_id="a")
    marker.started()
    marker.stopped(exact=True)
    assert not Marker(tmp_path, boot_id="b").machine_went_down()
    assert marker.last() == Ending(boot_id="a", clean=True, exact=True)


def test_a_torn_file_tells_nothing(tmp_path):
    (tmp_path / "run.json").write_bytes(b'{"boot_id":')
    assert Marker(tmp_path, boot_id="a").last() is None


def test_the_kernel_names_the_boot(tmp_path):
    marker = Marker(tmp_path)
    marker.started()
    assert not marker.machine_went_down()
