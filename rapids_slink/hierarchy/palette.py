"""The colours of clusters, the same in plots, in the explorer and in what it exports."""

#: The colours of the largest clusters, in order of size. The first six are those of Okabe and Ito, except black and
#: yellow: they are distinguishable with any kind of colour blindness.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C6BB1", "#66A61E", "#B15928", "#E7298A",
    "#17A2A2", "#8D8C12", "#FB8072", "#5E60CE", "#C49A6C", "#2CA02C", "#C51B7D", "#D4AC0D", "#CB4335", "#7FB3D5",
)  # fmt: skip
#: The colour of all other clusters, and that of noise in the explorer, which is faint.
OTHERS, NOISE = "#999999", "#A0A0A060"
